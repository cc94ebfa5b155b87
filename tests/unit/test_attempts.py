"""Attempts that a scheduler takes or refuses: what is kept, what is taken back, and what a plan says after it."""

import json
import os
import subprocess
import time
from contextlib import redirect_stdout, suppress
from pathlib import Path
from types import SimpleNamespace

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.slurm_programs import SlurmPrograms
from tests.unit.verbs import Capsys, Patch, prints, refuses
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.attempts import cancel
from torusrun.orchestrator.run.folder import claim, index, ledger
from torusrun.orchestrator.run.folder.events import CancelRequested, Started, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.upkeep import remove
from torusrun.training.checkpoint.manifest import name_of


class Cluster(SlurmPrograms):
    """A Slurm whose sbatch does as it is told, and which knows no job."""

    def refuses(self) -> None:
        self.program(
            "sbatch", "echo 'sbatch: error: Batch job submission failed: Invalid qos specification' >&2; exit 1"
        )

    def says_nothing(self) -> None:
        self.program("sbatch", "echo Submitted, more or less")

    def falls_silent(self) -> None:
        """As a controller that stands still and takes the job later: what sbatch wrote is recorded."""
        said = (Path(__file__).parent / "recorded/slurm/sbatch_silent.txt").read_text().partition("[stderr]\n")[2]
        self.program("sbatch", f"echo '{said}' >&2; exit 1")

    def failed_run(self) -> RunFolder:
        self.takes()
        assert main(["submit", str(self.home / "run.yaml")]) == 0
        (folder,) = (self.home / "runs").iterdir()
        End(State.FAILED, "as it should").write(folder / "attempts" / "1" / "end.json")
        return RunFolder(folder)


@pytest.fixture
def cluster(home: Path, monkeypatch: Patch) -> Cluster:
    return Cluster(home, monkeypatch, "time: 1h\ntrain: {}")


def status(capsys: Capsys) -> dict[str, object]:
    capsys.readouterr()
    view: dict[str, object] = json.loads(prints(capsys, "status", "last", "--json"))["runs"][0]
    return view


def an_hour_passes(run: RunFolder) -> None:
    lines = [json.loads(line) for line in run.ledger.read_text().splitlines()]
    run.ledger.write_text("".join(json.dumps({**line, "t": time.time() - 3600}) + "\n" for line in lines))


def time_of(plan: Path) -> str:
    return str(json.loads(plan.read_text())["spec"]["time"])


def test_a_refused_resume_changes_nothing_and_hides_nothing(cluster: Cluster, capsys: Capsys) -> None:
    run = cluster.failed_run()
    before = run.plan.read_bytes()
    cluster.refuses()
    assert main(["resume", "last", "--time", "2h"]) == 3
    assert "Invalid qos" in capsys.readouterr().err
    assert run.plan.read_bytes() == before, "a refused resume must not change the plan"
    assert [entry.name for entry in run.attempts.iterdir()] == ["1"], "a refused attempt must leave no folder"
    view = status(capsys)
    assert (view["state"], view["attempt"]) == ("FAILED", 1)
    cluster.takes()
    assert main(["resume", "last"]) == 0
    assert time_of(run.attempt(2).plan) == time_of(run.plan), "the time of a refused resume must be forgotten"
    End(State.COMPLETED, "all well").write(run.attempt(2).end)
    view = status(capsys)
    assert (view["state"], view["attempt"]) == ("COMPLETED", 2)


def test_submit_says_what_its_user_may_not_expect(cluster: Cluster, capsys: Capsys) -> None:
    cluster.takes()
    train = "train={epochs: 1, schedule: {warmup_epochs: 2}}"
    assert main(["submit", str(cluster.home / "run.yaml"), "--set", train]) == 0
    assert "torusrun: note: the run ends in its warm-up, at lr 0.05" in capsys.readouterr().err


def test_another_time_limit_is_the_new_attempts_own_and_the_next_ones(cluster: Cluster) -> None:
    run = cluster.failed_run()
    before = run.plan.read_bytes()
    assert main(["resume", "last", "--time", "2h"]) == 0
    End(State.FAILED, "again").write(run.attempt(2).end)
    assert main(["resume", "last"]) == 0
    assert run.plan.read_bytes() == before
    times = [time_of(run.attempt(number).plan) for number in (1, 2, 3)]
    assert times == ["3600.000000s", "7200.000000s", "7200.000000s"]
    assert "--time=120" in run.attempt(3).script.read_text()


def test_a_refused_submission_leaves_nothing(cluster: Cluster, capsys: Capsys) -> None:
    cluster.refuses()
    assert main(["submit", str(cluster.home / "run.yaml")]) == 3
    assert not list((cluster.home / "runs").iterdir())
    assert "no runs yet" in prints(capsys, "status")


def test_an_answer_without_a_job_id_does_not_count_as_a_refusal(cluster: Cluster, capsys: Capsys) -> None:
    """There may be a job, so the run stays, and is not submitted again unless its user knows better."""
    cluster.says_nothing()
    assert main(["submit", str(cluster.home / "run.yaml")]) == 3
    assert "did not print a job id" in capsys.readouterr().err
    view = status(capsys)
    assert view["state"] == "UNKNOWN" and "was cut off" in str(view["reason"])
    assert "--force" in refuses(capsys, "resume", "last")
    cluster.takes()
    assert main(["resume", "last", "--force"]) == 0
    assert status(capsys)["attempt"] == 2


def test_a_submission_without_an_answer_names_the_run_and_what_will_tell_of_it(
    cluster: Cluster, capsys: Capsys
) -> None:
    cluster.falls_silent()
    assert main(["submit", str(cluster.home / "run.yaml")]) == 3
    said = capsys.readouterr()
    (folder,) = (cluster.home / "runs").iterdir()
    assert said.out == f"{folder.name}\n", "a script that asks for the run needs its id"
    assert "timed out" in said.err and "a job may exist anyway" in said.err
    assert f"`torusrun status {folder.name}`" in said.err
    assert status(capsys)["state"] == "UNKNOWN"


def test_a_job_that_was_just_submitted_is_not_resumed_though_the_scheduler_does_not_show_it(
    cluster: Cluster, capsys: Capsys
) -> None:
    cluster.failed_run()
    assert main(["resume", "last"]) == 0
    assert "does not show it yet" in refuses(capsys, "resume", "last")


def test_a_resume_needs_a_certain_end_or_force(cluster: Cluster, capsys: Capsys) -> None:
    run = cluster.failed_run()
    lock = claim.hold(run.attempt(1))
    assert "processes of its ranks are still at work" in refuses(capsys, "resume", "last")
    os.close(lock)
    assert main(["resume", "last"]) == 0
    an_hour_passes(run)
    assert status(capsys)["state"] == "LOST", "an hour later its scheduler knows nothing of attempt 2"
    assert "it is not certain that its job is gone" in refuses(capsys, "resume", "last")
    ledger.append(run.ledger, Started(2, job="2", hosts=("n1",)))
    lock = claim.hold(run.attempt(2))
    assert main(["resume", "last"]) == 2
    os.close(lock)
    assert main(["resume", "last"]) == 0, "it began, and its lock says that none of its ranks lives"


@pytest.mark.parametrize("state", ["PENDING", "RUNNING"])
def test_a_forced_resume_cancels_the_older_job(cluster: Cluster, capsys: Capsys, state: str) -> None:
    cluster.failed_run()
    assert main(["resume", "last"]) == 0
    cluster.program("squeue", f"echo '2|{state}|None|'")
    cluster.program("scancel", f'echo "$@" > "{cluster.home}/cancelled"; exit 1')
    assert "--force" in refuses(capsys, "resume", "last")
    assert main(["resume", "last", "--force"]) == 0
    assert (cluster.home / "cancelled").read_text() == "2\n"
    assert status(capsys)["attempt"] == 3


def test_an_attempt_that_a_killed_client_left_half_made_is_made_again(cluster: Cluster) -> None:
    run = cluster.failed_run()
    run.attempt(2).unfinished.folder.mkdir()
    (run.attempt(2).unfinished.folder / "job.sh").write_text("half")
    assert main(["resume", "last"]) == 0
    assert sorted(entry.name for entry in run.attempts.iterdir()) == ["1", "2"]


def spec_of(plan: Path) -> dict[str, object]:
    kept = json.loads(plan.read_text())
    return {key: kept["spec"][key] for key in ("nodes", "grid", "time")}


def test_nodes_grid_and_hosts_may_change_and_hold_for_later_attempts(cluster: Cluster, capsys: Capsys) -> None:
    run = cluster.failed_run()
    before = (run.plan.read_bytes(), run.attempt(1).plan.read_bytes())
    assert main(["resume", "last", "--nodes", "2", "--grid", "1x2", "--exclude", "n[1-2]"]) == 0
    assert status(capsys)["grid"] == [1, 2], "what is shown is the grid of the newest attempt"
    End(State.NODE_FAIL, "n4 is gone").write(run.attempt(2).end)
    assert main(["resume", "last", "--exclude", "n4"]) == 0
    assert (run.plan.read_bytes(), run.attempt(1).plan.read_bytes()) == before
    changed = {"nodes": 2, "grid": "1x2", "time": "3600.000000s"}
    assert [spec_of(run.attempt(number).plan) for number in (2, 3)] == [changed, changed]
    scripts = [run.attempt(number).script.read_text() for number in (1, 2, 3)]
    assert ["--nodes=2" in text for text in scripts] == [False, True, True]
    assert "--exclude" not in scripts[0] and "--exclude=n1,n2\n" in scripts[1] and "--exclude=n1,n2,n4\n" in scripts[2]


def test_a_change_that_does_not_fit_leaves_no_attempt(cluster: Cluster, capsys: Capsys) -> None:
    run = cluster.failed_run()
    noted = run.ledger.read_bytes()
    assert main(["resume", "last", "--nodes", "3"]) == 2
    assert capsys.readouterr().err == "torusrun: --nodes 3: 'train.batch' 64 does not divide by 3 ranks\n"
    assert [entry.name for entry in run.attempts.iterdir()] == ["1"] and run.ledger.read_bytes() == noted


def test_a_run_after_any_end_of_another_reaches_the_scheduler(cluster: Cluster) -> None:
    cluster.takes()
    for _ in range(3):
        assert main(["submit", str(cluster.home / "run.yaml")]) == 0
    runs = (cluster.home / "runs").iterdir()
    first, second, third = sorted(runs, key=lambda run: (run / "ledger.jsonl").stat().st_mtime_ns)
    cluster.program("squeue", 'for job in 1 2 3; do echo "$job|PENDING|Priority|"; done')
    words = ["submit", str(cluster.home / "run.yaml"), "--after", first.name, "--after-any", second.name]
    assert main([*words, "--after-any", third.name]) == 0
    (last,) = {*(cluster.home / "runs").iterdir()} - {first, second, third}
    assert "#SBATCH --dependency=afterok:1,afterany:2:3\n" in (last / "attempts/1/job.sh").read_text()
    submitting = ledger.last(ledger.events(last / "ledger.jsonl"), Submitting, 1)
    assert submitting and (submitting.after, submitting.after_any) == ((str(first),), (str(second), str(third)))


def test_a_run_that_waits_for_a_role_begins_after_the_job_of_its_run_has_begun(
    cluster: Cluster, capsys: Capsys
) -> None:
    cluster.takes()
    run = cluster.home / "run.yaml"
    alone = run.read_text()
    run.write_text(f"{alone}\ncode: none\nroles: {{server: {{command: [serve]}}}}\n")
    assert main(["submit", str(run)]) == 0
    (served,) = (cluster.home / "runs").iterdir()
    cluster.program("squeue", 'echo "1|PENDING|Priority|"')
    assert main(["submit", str(run), "--after", f"{served.name}:server"]) == 2
    assert "two roles are called 'server'" in capsys.readouterr().err
    run.write_text(alone)
    assert main(["submit", str(run), "--after", f"{served.name}:sever"]) == 2
    assert "has no role 'sever'; did you mean 'server'?" in capsys.readouterr().err
    assert main(["submit", str(run), "--after", f"{served.name}:server"]) == 0
    (waits,) = {*(cluster.home / "runs").iterdir()} - {served}
    assert "#SBATCH --dependency=after:1\n" in (waits / "attempts/1/job.sh").read_text()
    submitting = ledger.last(ledger.events(waits / "ledger.jsonl"), Submitting, 1)
    assert submitting and (submitting.after, submitting.after_ready) == ((), {"server": str(served)})


def test_a_run_that_has_ended_satisfies_after_any_at_once_and_never_after(cluster: Cluster, capsys: Capsys) -> None:
    failed = cluster.failed_run()
    assert main(["submit", str(cluster.home / "run.yaml"), "--after", failed.run_id]) == 2
    assert "can only wait for a run that has yet to end" in capsys.readouterr().err
    assert main(["submit", str(cluster.home / "run.yaml"), "--after-any", failed.run_id]) == 0
    (second,) = {*(cluster.home / "runs").iterdir()} - {failed.folder}
    assert "--dependency" not in (second / "attempts/1/job.sh").read_text()


def test_many_runs_are_cancelled_by_one_question_and_one_command_for_those_that_can_end_together(
    cluster: Cluster, capsys: Capsys, monkeypatch: Patch
) -> None:
    """Run 5 is over. Of those at work, 3 ends by itself and 4 does not."""
    monkeypatch.setattr(cancel, "NOTICED_S", -1.0)
    (cluster.home / "site.yaml").write_text((cluster.home / "site.yaml").read_text() + "kill_after: 1s\n")
    cluster.takes()
    for _ in range(5):
        assert main(["submit", str(cluster.home / "run.yaml")]) == 0
    runs = index.runs()
    for job in (3, 4):
        ledger.append(runs[job - 1].ledger, Started(1, job=str(job), hosts=("n1",)))
    End(State.CANCELLED, "as asked", certain=False).write(runs[2].attempt(1).end)
    End(State.FAILED, "badly").write(runs[4].attempt(1).end)
    states = ["PENDING", "PENDING", "RUNNING", "RUNNING"]
    rows = "\n".join(f"echo '{job}|{state}|None|'" for job, state in enumerate(states, 1))
    cluster.program("squeue", f'echo squeue >> "{cluster.home}/calls"\n{rows}')
    cluster.program("scancel", f'echo scancel "$@" >> "{cluster.home}/calls"')
    capsys.readouterr()
    assert main(["cancel", *(run.run_id for run in runs), runs[0].run_id]) == 2
    shown = capsys.readouterr()
    assert [line.split()[2] for line in shown.out.splitlines()] == [run.run_id for run in runs[:4]]
    assert shown.err == f"torusrun: {runs[4].run_id} is over already: FAILED, badly\n"
    assert (cluster.home / "calls").read_text().splitlines() == ["squeue", "scancel 1 2", "scancel 4"]
    for run in runs[:4]:
        assert ledger.last(ledger.events(run.ledger), CancelRequested, 1), "each attempt was asked to end"
    cluster.program("scancel", "echo scancel: error: not now >&2; exit 1")
    assert main(["cancel", runs[0].run_id, runs[1].run_id]) == 3
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("scancel: error: not now") == 1
    assert main(["cancel", runs[0].run_id, "x-none"]) == 2 and "there is no run 'x-none'" in capsys.readouterr().err


@pytest.mark.parametrize("answers", [True, False])
def test_the_job_of_a_lost_run_is_cancelled_and_removed_by_force_alone(
    answers: bool, cluster: Cluster, monkeypatch: Patch
) -> None:
    """That the scheduler does not know its job is no proof that it is over, and ending such a job is an error of it."""
    cluster.takes()
    assert main(["submit", str(cluster.home / "run.yaml")]) == 0
    (run,) = index.runs()
    seen = SimpleNamespace(state=State.LOST, reason="it has left the queue", job="1", attempt=1)
    monkeypatch.setattr(cancel, "views", lambda *_, **__: [seen])
    monkeypatch.setattr(remove, "look", lambda _: seen)
    says = "scancel: error: Kill job error on job id 1: Invalid job id specified"
    cluster.program("scancel", f'echo "$@" >> "{cluster.home}/ended"; echo {says} >&2; exit 1')
    for name in ("squeue", "sacct"):
        cluster.program(name, "exit 0" if answers else "exit 1")
    assert bool(cancel.cancel_all([run])) != answers and (cluster.home / "ended").read_text() == "1\n"
    (refused,) = remove.remove_all([run]).values()
    assert f"`torusrun cancel {run.run_id}`, then `torusrun rm --force {run.run_id}`" in str(refused)
    assert not remove.remove_all([run], force=True) and not run.folder.exists()


def test_a_scheduler_that_does_not_cancel_is_quoted_although_ranks_are_at_work_elsewhere(cluster: Cluster) -> None:
    cluster.takes()
    assert main(["submit", str(cluster.home / "run.yaml")]) == 0
    (run,) = index.runs()
    cluster.program("scancel", "echo 'scancel: error: Unable to contact slurm controller' >&2; exit 1")
    held = claim.hold(run.attempt(1))
    (refused,) = cancel.cancel_all([run]).values()
    os.close(held)
    assert "Unable to contact slurm controller" in str(refused)


def test_a_lost_run_counts_as_at_work_for_a_pattern_of_cancel_and_for_gc(cluster: Cluster, capsys: Capsys) -> None:
    cluster.takes()
    cluster.program("scancel", f'echo "$@" >> "{cluster.home}/ended"')
    assert main(["submit", str(cluster.home / "run.yaml")]) == 0
    (run,) = index.runs()
    half = run.checkpoints / f".tmp-{name_of(10)}-1"
    half.mkdir(parents=True)
    os.utime(half, (1.0, 1.0))
    an_hour_passes(run)
    assert status(capsys)["state"] == "LOST"
    assert main(["gc", "--yes"]) == 0 and half.exists()
    assert main(["cancel", "*", "--yes"]) == 0 and (cluster.home / "ended").read_text() == "1\n"


@pytest.mark.parametrize("options", [[], ["--json"]])
def test_the_id_of_a_submitted_run_is_a_remark_if_standard_output_is_full(
    options: list[str], cluster: Cluster, capsys: Capsys
) -> None:
    cluster.takes()
    with suppress(OSError), open("/dev/full", "w") as full, redirect_stdout(full):  # it cannot be closed, either
        assert main(["submit", str(cluster.home / "run.yaml"), *options]) == 3
    (run,) = index.runs()
    said = capsys.readouterr().err
    assert "this result could not be printed: " in said and run.run_id in said


def test_on_one_machine_a_lost_run_is_over_and_no_process_that_has_its_number_is_ended(
    home: Path, monkeypatch: Patch
) -> None:
    with subprocess.Popen(["sleep", "600"], start_new_session=True) as other:
        run = make(write_specs(home), End(State.COMPLETED, ""), job=f"{other.pid}.1")
        run.attempt(1).end.unlink()
        seen = SimpleNamespace(state=State.LOST, reason="its process has ended", job=f"{other.pid}.1", attempt=1)
        monkeypatch.setattr(cancel, "views", lambda *_, **__: [seen])
        monkeypatch.setattr(remove, "look", lambda _: seen)
        (refused,) = cancel.cancel_all([run]).values()
        assert "is over already: LOST" in str(refused) and other.poll() is None
        other.kill()
    assert not remove.remove_all([run])
