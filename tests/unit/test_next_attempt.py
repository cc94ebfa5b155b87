"""A run that keeps going: its progress by the ledger, its jobs in turn, and its state between two attempts."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.unit.slurm_programs import SlurmPrograms
from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.attempts import bad_hosts
from torusrun.orchestrator.run.bad_nodes import noted
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.checkpoints import content
from torusrun.orchestrator.run.folder.events import (
    CancelRequested,
    Ended,
    Event,
    GivenBadHosts,
    JobAdded,
    KeptGoing,
    NoMoreJobs,
    Started,
    Submitted,
    Submitting,
)
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state import next_attempt
from torusrun.orchestrator.run.state.next_attempt import (
    OUTSIDE,
    PAUSES_S,
    ended_outside,
    first_of_submission,
    hopeless,
    in_vain,
    pause_s,
    same_error,
)
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.schedulers.gridengine.scheduler import GridEngine
from torusrun.orchestrator.schedulers.pbs.scheduler import PBS
from torusrun.orchestrator.schedulers.words import whole, with_arrays

LIMIT = Ended(2, State.TIMEOUT, "its time limit is near", Cause.TIME_LIMIT)
OWN = Status(State.TIMEOUT, "its time limit is near", cause=Cause.TIME_LIMIT)


def attempts(*resumes: str | None, by_user: int = 1) -> list[Event]:
    """Attempts that continued from these checkpoints; attempt `by_user` was submitted by a client."""
    follows = [0 if number == by_user else number - 1 for number in range(1, len(resumes) + 1)]
    return [
        event
        for number, (name, before) in enumerate(zip(resumes, follows, strict=True), 1)
        for event in (
            Submitting(number, "x.1", resumes=name, follows=before, jobs=9, by="7_x" if before else ""),
            Submitted(number, "7"),
            Started(number, f"7_{number}", ("n1",)),
        )
    ]


@pytest.mark.parametrize(
    ("resumes", "newest", "by_user", "count"),
    [
        ([None], None, 1, 1),
        ([None], "step-1", 1, 0),
        ([None, "step-1"], "step-1", 1, 1),
        ([None, "step-1", "step-1"], "step-1", 1, 2),
        ([None, "step-1", "step-1"], "step-2", 1, 0),
        ([None, None, None], None, 1, 3),
        ([None, None, None], None, 3, 1),  # what was in vain before the user resumed it does not count
    ],
)
def test_attempts_without_a_new_checkpoint_are_counted_from_the_last(
    resumes: list[str | None], newest: str | None, by_user: int, count: int
) -> None:
    events = attempts(*resumes, by_user=by_user)
    assert in_vain(events, len(resumes), (newest, "")) == count
    assert first_of_submission(events, len(resumes)) == by_user


@pytest.mark.parametrize("cause", [Cause.BAD_HOST, Cause.PREEMPTED, *OUTSIDE])
def test_an_attempt_that_its_hosts_or_another_job_ended_was_not_in_vain(cause: Cause) -> None:
    events = [*attempts(None, None, None), Ended(2, State.NODE_FAIL, "", cause)]
    assert in_vain([*events, Ended(3, State.FAILED, "", Cause.PROGRAM)], 3, (None, "")) == 2


LAUNCHER = Cause.LAUNCHER


@pytest.mark.parametrize(
    ("causes", "newest", "count"),
    [
        ([LAUNCHER], None, 1),
        ([LAUNCHER, Cause.UNKNOWN, Cause.HOST_LOST], None, 3),
        ([LAUNCHER, Cause.PROGRAM, LAUNCHER], None, 1),
        ([LAUNCHER, Cause.PROGRAM], None, 0),
        ([LAUNCHER, LAUNCHER], "step-1", 0),  # there is progress
        ([LAUNCHER, None], None, 0),  # it has not ended
    ],
)
def test_ends_outside_the_program_are_counted_in_a_row(
    causes: list[Cause | None], newest: str | None, count: int
) -> None:
    ends = [Ended(number, State.FAILED, "", cause) for number, cause in enumerate(causes, 1) if cause]
    assert ended_outside([*attempts(*[None] * len(causes)), *ends], len(causes), (newest, "")) == count


def test_an_attempt_that_was_long_at_work_is_the_first_of_a_row() -> None:
    late_s = attempts(None)[-1].time_s + PAUSES_S[-1] + 60
    ends = [Ended(number, State.FAILED, "", LAUNCHER, time_s=late_s) for number in (1, 2)]
    assert ended_outside([*attempts(None, None), *ends], 2, (None, "")) == 1


def test_pauses_grow_from_seconds_to_minutes_whatever_the_clocks_say() -> None:
    found = [pause_s(outside, 1000.0, 1000.0) for outside in range(9)]
    assert found == sorted(found) and found[:2] == [0.0, 0.0] and 0 < found[2] < 10 and found[-1] == 600.0
    assert (pause_s(2, 1000.0, 1002.0), pause_s(2, 1000.0, 9e9), pause_s(2, 9e9, 1000.0)) == (3.0, 0.0, 5.0)


@pytest.mark.parametrize(
    ("steps", "count"),
    [
        ({1: 0, 2: 40, 3: 80}, 1),  # whether the newest got further is not known
        ({1: 0, 2: 40, 3: 40}, 2),
        ({1: 0, 2: 0, 3: 0}, 3),
        ({1: 0, 3: 40}, 2),  # the second never began to train
        ({1: 40, 2: 0, 3: 0}, 3),  # the memory was lost
        ({}, 3),
    ],
)
def test_an_attempt_that_another_continues_from_memory_was_not_in_vain(steps: dict[int, int], count: int) -> None:
    assert in_vain(attempts(None, None, None), 3, (None, ""), steps) == count


def test_a_checkpoint_that_a_program_writes_again_is_a_new_one() -> None:
    events = [*attempts(None), Submitting(2, "x.1", resumes="last.pt", resumes_content="7", follows=1, by="7_0")]
    assert in_vain(events, 2, ("last.pt", "7")) == 1 and in_vain(events, 2, ("last.pt", "8")) == 0


@pytest.mark.parametrize(("minutes", "same"), [(1, True), (30, False)])
def test_an_error_that_repeats_soon_is_the_same_whatever_the_program_writes_at_its_start(
    minutes: float, same: bool
) -> None:
    events = attempts(None, "log-1", "log-2")
    ends = [
        Ended(n, State.FAILED, "", **error("ValueError: 3"), time_s=events[-1].time_s + 60 * minutes) for n in (1, 2, 3)
    ]  # type: ignore[arg-type]
    assert same_error([*events, *ends], 3) == same and not same_error([*events, *ends], 2)


def test_a_submission_ends_at_the_attempt_that_a_client_or_a_job_submitted() -> None:
    events = [*attempts(None, None), Submitting(3, "x.3", follows=2, jobs=9)]
    events.append(Submitting(4, "x.3", follows=3, by="7_0"))
    assert first_of_submission(events, 4) == 3 and first_of_submission(events, 2) == 1


def test_alike_errors_at_unknown_steps_are_the_same_only_from_the_same_checkpoint() -> None:
    ends = [Ended(n, State.FAILED, "", Cause.PROGRAM, evidence={"said": "CUDA error"}) for n in (1, 2)]
    assert same_error([*attempts(None, None), *ends], 2)
    assert not same_error([*attempts(None, "step-7"), *ends], 2)


def error(said: str, place: str = "") -> dict[str, object]:
    return {"cause": Cause.PROGRAM, "evidence": {"said": said, "place": place}}


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        ({}, {}, True),
        ({}, {"step": 8}, False),
        ({}, error("KeyError"), False),
        ({}, {"cause": Cause.KILLED}, False),
        ({}, error("ValueError: 4"), True),
        (error("ValueError: a", "train.py:7"), error("ValueError: b", "train.py:7"), True),
        (error("ValueError: a", "train.py:7"), error("ValueError: a", "train.py:8"), False),
        (error("ValueError: a", "train.py:7"), error("KeyError: a", "train.py:7"), False),
        (error("[rank0]: my.Error: a", "t.py:7"), error("[rank3]: my.Error: b", "t.py:7"), True),
        (
            error("rank 1 exited with 1: ValueError: a", "t.py:7"),
            error("rank 0 exited with 1: ValueError: b", "t.py:7"),
            True,
        ),
        (error("worker 4711 at 0x7fAb3c: /tmp/x-8/log is gone"), error("worker 12 at 0x1: /tmp/y.9/log is gone"), True),
        (error("job 3f2a9c81d7 on host7 failed"), error("job 99ab01cd77 on host8 failed"), True),
        (error("cannot open the door"), error("cannot open the window"), False),
        (error(""), error(""), False),
    ],
)
def test_two_ends_are_alike_if_step_type_and_place_are(
    first: dict[str, object], second: dict[str, object], alike: bool
) -> None:
    first = {**error("ValueError: 3"), "step": 7, **first}
    ends = [Ended(n, State.FAILED, "", **facts) for n, facts in ((1, first), (2, {**first, **second}))]  # type: ignore[arg-type]
    assert same_error([*attempts(None, None), *ends], 2) == alike


@pytest.mark.parametrize(
    ("job", "state", "says"),
    [
        (
            Status(State.PENDING, "Priority"),
            State.PENDING,
            "its time limit is near; the next waits",
        ),
        (Status(State.RUNNING), State.RUNNING, "the next begins"),
        (Status(State.UNKNOWN, "no answer"), State.UNKNOWN, "whether another attempt follows is not known: no answer"),
        (Status(State.COMPLETED), State.TIMEOUT, "its time limit is near"),
    ],
)
def test_between_two_attempts_the_state_is_that_of_the_next_job(job: Status, state: State, says: str) -> None:
    found = next_attempt.status([*attempts(None, None), LIMIT], 2, OWN, job)
    assert found.state is state and says in found.reason


@pytest.mark.parametrize(
    ("more", "follows"),
    [
        ([], True),
        ([Ended(2, State.COMPLETED, "")], False),
        ([LIMIT, KeptGoing(2, "its jobs are over")], False),
        ([LIMIT, KeptGoing(1, "of an earlier submission")], True),
    ],
)
def test_the_ledger_says_whether_another_attempt_may_follow(more: list[Event], follows: bool) -> None:
    assert next_attempt.may_begin_another([*attempts(None, None), *more], 2) == follows
    assert not next_attempt.may_begin_another([Submitting(1, "x.1"), *more], 1)


def test_the_end_says_why_no_further_attempt_followed() -> None:
    events = [*attempts(None, None), LIMIT, KeptGoing(2, "its jobs are over")]
    assert (
        next_attempt.at_the_end(events, 2, OWN).reason
        == "its time limit is near; no further attempt: its jobs are over"
    )
    cancelled = next_attempt.at_the_end([*events[:-1], CancelRequested(2), KeptGoing(2, "so", cancelled=True)], 2, OWN)
    assert (cancelled.state, cancelled.cause) == (State.CANCELLED, Cause.STOPPED)


def test_an_array_is_as_its_running_task_else_as_a_waiting_one_else_as_the_last_that_ran() -> None:
    lost, done = Status(State.NODE_FAIL, hosts=("n1",)), Status(State.COMPLETED, hosts=("n1",))
    removed, waits, runs = Status(State.CANCELLED), Status(State.PENDING), Status(State.RUNNING)
    assert whole(done, waits, runs) is runs and whole(done, waits) is waits
    assert whole(done, lost, removed) is lost and whole(removed) is removed
    found = with_arrays({"7_0": done, "7_[1-4%1]": waits, "8": runs}, "_")
    assert found["7"] is waits and found["8"] is runs and len(found) == 4


@pytest.mark.parametrize("pointer", ["latest", "latest.pt"])
def test_a_checkpoint_below_a_pointer_that_is_newer_is_progress(tmp_path: Path, pointer: str) -> None:
    """As two files that are written in turn, with a link to the newest, or DeepSpeed's folders and file of a name."""

    def seen(folder: str, state: str) -> str:
        (tmp_path / folder).mkdir(exist_ok=True)
        (tmp_path / folder / "state.pt").write_text(state)
        (tmp_path / pointer).unlink(missing_ok=True)
        if pointer == "latest":
            (tmp_path / pointer).write_text(folder)
        else:
            (tmp_path / pointer).symlink_to(Path(folder, "state.pt"))
        return content(tmp_path)

    states = [seen("a", "1"), seen("b", "2"), seen("a", "3"), seen("b", "4")]
    assert len({*states}) == 4 and seen("b", "4") == states[-1]


@pytest.mark.parametrize(
    ("ends", "why"),
    [
        ([Cause.TIME_LIMIT], ""),
        ([Cause.HOST_LOST, Cause.TIME_LIMIT], ""),
        ([Cause.TIME_LIMIT] * 2, "2 attempts in a row made no new checkpoint (keep_going.without_progress)"),
        ([Cause.IMAGE], ""),  # it has begun, so the files are right: it is this host
        ([Cause.SCHEDULER], "its dependency dropped it"),
        ([Cause.INTERNAL], "a defect of torusrun ended it, and would end another attempt"),
        ([Cause.LAUNCHER] * 8, "each of its 8 attempts or more was ended by its launcher, its scheduler or a host"),
    ],
)
def test_a_run_has_hope_until_its_ends_say_otherwise(ends: list[Cause], why: str) -> None:
    last = len(ends)
    events = [*attempts(*[None] * last), *(Ended(n, cause.state, "", cause) for n, cause in enumerate(ends, 1))]
    found = hopeless(events, last, (None, ""), {}, 2)
    assert (found.why if found else "") == why


def test_a_run_without_a_start_stops() -> None:
    begun = [Submitting(1, "x.1", jobs=9), Submitted(1, "7")]
    for cause in (Cause.CONFIGURATION, Cause.IMAGE):
        found = hopeless([*begun, Ended(1, cause.state, "", cause)], 1, (None, ""), {}, 2)
        assert found and found.why == "another attempt would fail in the same way"
    given = [GivenBadHosts(1, f"7_{task}", {"n3": "lost twice"}) for task in range(3)]
    found = hopeless([*begun, Ended(1, State.NODE_FAIL, "", Cause.BAD_HOST), *given], 1, (None, ""), {}, 2)
    assert found and found.hosts == ("n3",)


# Jobs of a run that are submitted one by one, each after any end of the one before, in place of an array.


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
