"""Jobs of a run that are submitted one by one, each after any end of the one before, in place of an array."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.unit.slurm_programs import SlurmPrograms
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.attempts import bad_hosts
from torusrun.orchestrator.run.bad_nodes import noted
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, JobAdded, KeptGoing, NoMoreJobs, Started, Submitted
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import next_attempt
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS

RUN = "nodes: 2\ntime: 1h\nkeep_going: {attempts: 4}\ntrain: {}"
LATER_S = 120.0  # longer than a scheduler needs to show a job


class Cluster(SlurmPrograms):
    """A Slurm that writes down what it is asked for; `most` jobs may be in its queue."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(home, monkeypatch, RUN)
        site = home / "site.yaml"
        site.write_text(site.read_text() + "attempts_by: dependency\n")
        self.allow(9)

    def allow(self, most: int) -> None:
        count = f'echo "$*" >> "{self.home}/asked"; n=$(wc -l < "{self.home}/asked")'
        self.program("sbatch", f'{count}; test $n -le {most} || {{ echo "too many jobs" >&2; exit 1; }}; echo $n')

    @property
    def asked(self) -> list[str]:
        return (self.home / "asked").read_text().splitlines()

    def submit(self, *words: str) -> RunFolder:
        before = {*(self.home / "runs").glob("*")}
        assert main(["submit", str(self.home / "run.yaml"), *words]) == 0
        (folder,) = {*(self.home / "runs").iterdir()} - before
        return RunFolder(folder)

    def queue(self, *jobs: str) -> None:
        """What squeue lists: ids and states, as in '2 PENDING'."""
        lines = "; ".join(f"echo '{job.replace(' ', '|')}|None|'" for job in jobs) or "exit 0"
        self.program("squeue", f'case "$*" in *--name=*) exit 0;; esac; {lines}')


@pytest.fixture
def cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> Cluster:
    return Cluster(home, monkeypatch)


def over(run: RunFolder) -> None:
    """Attempt 1 began in the first job, and met its time limit."""
    end = ended(How.TIME_NEAR, limit_s=3600.0)
    ledger.append(run.ledger, Started(1, "1", ("n1", "n2")))
    end.write(run.attempt(1).end)
    ledger.append(run.ledger, Ended.by(1, end))


def test_each_job_begins_after_any_end_of_the_one_before_and_has_a_name_of_its_own(cluster: Cluster) -> None:
    run = cluster.submit()
    script = run.attempt(1).script
    assert "--array" not in script.read_text() and f"--job-name={run.run_id}.1\n" in script.read_text()
    later = [f"--job-name={run.run_id}.1.{n} --dependency=afterany:{n}" for n in (1, 2, 3)]
    assert cluster.asked == [f"--parsable {words} {script}".replace("  ", " ") for words in ("", *later)]
    events = ledger.events(run.ledger)
    assert next_attempt.jobs_of(events, 1) == ("1", "2", "3", "4") and not next_attempt.lacks_jobs(events, 1)
    assert next_attempt.later_jobs(events, 1, "3") == ("4",) and next_attempt.later_jobs(events, 1, "4") == ()


def test_a_scheduler_that_takes_only_some_of_the_jobs_leaves_the_run_with_fewer(
    cluster: Cluster, capsys: pytest.CaptureFixture[str]
) -> None:
    cluster.allow(2)
    run = cluster.submit()
    assert "2 of 4 jobs submitted, and no more: " in (said := capsys.readouterr().err) and "too many jobs" in said
    events = ledger.events(run.ledger)
    assert len(cluster.asked) == 3, "after a refusal nothing more is submitted"
    assert next_attempt.jobs_of(events, 1) == ("1", "2") and not next_attempt.lacks_jobs(events, 1)
    cluster.allow(0)
    assert main(["submit", str(cluster.home / "run.yaml")]) == 3 and len([*(cluster.home / "runs").iterdir()]) == 1


@pytest.mark.parametrize(
    ("queue", "state", "says"),
    [
        (["1 COMPLETED", "2 PENDING", "3 PENDING", "4 PENDING"], State.PENDING, "the next waits in the queue"),
        (["2 RUNNING", "3 PENDING", "4 PENDING"], State.RUNNING, "the next begins"),
        (["1 RUNNING", "2 PENDING", "3 PENDING", "4 PENDING"], State.RUNNING, "the next begins"),
        (
            ["1 COMPLETED", "2 CANCELLED", "3 CANCELLED", "4 CANCELLED"],
            State.TIMEOUT,
            "limit of 3600 s is near",
        ),
    ],
)
def test_between_two_attempts_the_state_of_the_run_is_that_of_its_next_job(
    cluster: Cluster, queue: list[str], state: State, says: str
) -> None:
    run = cluster.submit()
    over(run)
    cluster.queue(*queue)
    for _ in range(2):
        (view,) = views([run], fresh=True)
        assert view.state is state and says in view.reason
    assert (ledger.last(ledger.events(run.ledger), KeptGoing, 1) is not None) == state.over


def test_cancelling_ends_all_jobs_that_are_not_over_the_last_first(cluster: Cluster) -> None:
    run = cluster.submit()
    over(run)
    cluster.queue("1 COMPLETED", "2 PENDING", "3 PENDING", "4 PENDING")
    cluster.program("scancel", f'echo "$*" >> "{cluster.home}/ended"')
    assert main(["cancel", run.run_id]) == 0
    assert (cluster.home / "ended").read_text() == "4 3 2\n"
    (view,) = views([run], fresh=True)
    assert view.state is State.CANCELLED


@pytest.mark.parametrize(("found", "jobs"), [("4", ("1", "2", "3", "4")), ("", ("1", "2", "3"))])
def test_a_job_whose_answer_was_lost_is_found_by_its_name_and_none_is_submitted_twice(
    cluster: Cluster, found: str, jobs: tuple[str, ...]
) -> None:
    run = cluster.submit()
    lines = run.ledger.read_text().splitlines(keepends=True)
    assert '"job_added"' in lines[-1]
    run.ledger.write_text("".join(lines[:-1]))  # the client was killed after the third job
    over(run)
    name = f'*--name={run.run_id}.1.3*) echo "{found}";; *--name=*) echo 9;;'
    cluster.program("squeue", f'case "$*" in {name} *) echo "1|COMPLETED|None|";; esac')
    (view,) = views([run], fresh=True)
    assert view.state is State.UNKNOWN and "whether another job was submitted is not known yet" in view.reason
    views([run], time.time() + LATER_S, fresh=True)
    views([run], time.time() + LATER_S, fresh=True)
    events = ledger.events(run.ledger)
    assert next_attempt.jobs_of(events, 1) == jobs and not next_attempt.lacks_jobs(events, 1)
    assert (ledger.last(events, NoMoreJobs, 1) is None) == bool(found) and len(cluster.asked) == 4
    assert [event.looked_up for event in events if isinstance(event, JobAdded)][2:] == [True] * bool(found)


def test_a_run_that_waits_for_such_a_run_waits_for_its_last_job(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.queue("1 RUNNING", "2 PENDING", "3 PENDING", "4 PENDING")
    second = cluster.submit("--after", run.run_id)
    assert "--dependency=afterany:4\n" in second.attempt(1).script.read_text()


def test_hosts_that_turn_bad_are_left_out_of_each_later_job(cluster: Cluster) -> None:
    run = cluster.submit()
    cluster.program("sinfo", 'for n in 1 2 3 4; do echo "main*|n$n"; done')
    cluster.program("scontrol", f'echo "$*" >> "{cluster.home}/changed"')
    noted.found_bad(run, 1, {"n3": "gpus: 3, wanted 4"})
    bad_hosts.leave_out(run, 1, next_attempt.later_jobs(ledger.events(run.ledger), 1, "2"), None)
    changed = (cluster.home / "changed").read_text().splitlines()
    assert changed == [f"update JobId={job} ExcNodeList=n3" for job in (3, 4)]


def test_the_words_of_other_schedulers() -> None:
    assert PBS().in_turn_args("x.1.2", "7.pbs1") == ["-N", "x.1.2", "-W", "depend=afterany:7.pbs1"]
    assert GridEngine("me").in_turn_args("x.1.2", "7") == ["-N", "x.1.2", "-hold_jid", "7"]


def test_jobs_of_an_array_are_one_job_and_those_of_this_machine_have_no_site_key_to_obey(
    home: Path, cluster: Cluster
) -> None:
    site = home / "site.yaml"
    site.write_text(site.read_text().replace("dependency", "array"))
    run = cluster.submit()
    assert "#SBATCH --array=0-3%1" in run.attempt(1).script.read_text()
    events = ledger.events(run.ledger)
    assert next_attempt.jobs_of(events, 1) == ("1",) and not next_attempt.lacks_jobs(events, 1)
    assert ledger.last(events, Submitted, 1) and '"in_turn"' not in run.ledger.read_text()
    assert json.loads(run.plan.read_text())["site"].get("attempts_by", "array") == "array"
