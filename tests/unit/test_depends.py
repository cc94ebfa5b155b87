"""What a run depends on: those that its scheduler holds it for, and the attempt of it that works."""

from __future__ import annotations

import json
import time
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from tests.unit.slurm_programs import SlurmPrograms
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.cli.main import main
from torusrun.orchestrator.run.attempts import cancel, submit
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Changes, Ended, Event, Refused, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import derive
from torusrun.orchestrator.run.state import attempts
from torusrun.orchestrator.run.state.depends import held_forever
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.record import read_record

FAILED = End(State.FAILED, "rank 1 was killed")
GONE = "999999999.1"


@pytest.fixture
def run(home: Path) -> RunFolder:
    return make(write_specs(home), FAILED)


@pytest.mark.parametrize("option", ["after", "after_any"])
def test_a_job_that_is_held_for_one_that_never_began_waits_for_ever(run: RunFolder, option: str) -> None:
    """As PBS holds it; a later attempt of the awaited run changes nothing."""
    awaited = RunFolder(run.folder.parent / "awaited")
    awaited.folder.mkdir()
    ledger.append(awaited.ledger, Submitted(1, job=GONE, scheduler="pbs"))
    run.attempt(2).folder.mkdir()
    ledger.append(run.ledger, Submitting(2, name="made", **{option: (str(awaited.folder),)}))
    job = Status(State.PENDING, "it waits for other jobs", held=True)
    assert held_forever(read_record(run), job) == job, "the awaited job may still run"
    ledger.append(awaited.ledger, Ended(1, State.CANCELLED, "cancelled by its user"))
    ledger.append(awaited.ledger, Submitted(2, job=GONE, scheduler="pbs", time_s=time.time() + 60))
    told = held_forever(read_record(run), job)
    assert told and told.never_starts and "awaited ended before it began: cancel this run" in told.reason, told
    assert held_forever(read_record(run), Status(State.PENDING)) == Status(State.PENDING), (
        "it is not held for other jobs"
    )


def test_a_job_that_is_held_for_one_that_began_is_let_go(run: RunFolder) -> None:
    awaited = make(run.folder.parent.parent / "run.yaml", FAILED)
    ledger.append(awaited.ledger, Started(1, job=GONE, hosts=("here",)))
    ledger.append(awaited.ledger, Ended(1, State.FAILED, "rank 1 was killed"))
    run.attempt(2).folder.mkdir()
    ledger.append(run.ledger, Submitting(2, name="made", after_any=(str(awaited.folder),)))
    job = Status(State.PENDING, "it waits for other jobs", held=True)
    assert held_forever(read_record(run), job) == job


# Which attempt of a run is the newest, and which one works: a queued one does not hide the one at work.


FIRST: list[Event] = [Submitting(1, "x.1"), Submitted(1, "7"), Started(1, "7", ("n1",))]
BY_USER: list[Event] = [Submitting(2, "x.2"), Submitted(2, "8")]
BY_JOB: list[Event] = [Submitting(2, "x.2", follows=1), Submitted(2, "8")]
BY_NEXT_JOB: list[Event] = [Submitting(3, "x.3", follows=2), Submitted(3, "9")]
FIRST_ENDS = Ended(1, State.CANCELLED, "phase 2 needs 2 nodes")


@pytest.mark.parametrize(
    ("events", "newest", "works"),
    [
        ([], 1, 1),
        (FIRST, 1, 1),
        ([*FIRST, *BY_USER], 2, 2),  # forced: the first is to end once the second begins
        ([*FIRST, *BY_JOB], 2, 1),
        ([*FIRST, *BY_JOB, FIRST_ENDS], 2, 2),
        ([*FIRST, *BY_JOB, Started(2, "8", ("n1", "n2"))], 2, 2),
        ([*FIRST, *BY_JOB, *BY_NEXT_JOB], 3, 1),
        ([*FIRST, *BY_JOB, FIRST_ENDS, *BY_NEXT_JOB], 3, 2),
        ([*FIRST, *BY_JOB, Refused(2, "no such queue")], 1, 1),
        ([*FIRST, Submitting(2, "x.2", follows=5), Submitted(2, "8")], 2, 2),  # a damaged ledger
    ],
)
def test_the_ledger_says_which_attempt_is_the_newest_and_which_one_works(
    events: list[Event], newest: int, works: int, tmp_path: Path
) -> None:
    found = attempts.newest(events, [])
    assert (found, attempts.working(RunFolder(tmp_path), events, found)) == (newest, works)


def test_an_attempt_whose_job_recorded_its_end_works_no_more(tmp_path: Path) -> None:
    run = RunFolder(tmp_path)
    run.attempt(1).folder.mkdir(parents=True)
    End(State.OOM, "no memory").write(run.attempt(1).end)
    assert attempts.working(run, [*FIRST, *BY_JOB], 2) == 2


@pytest.fixture
def cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmPrograms:
    return SlurmPrograms(home, monkeypatch, "nodes: 1\ntrain: {batch: 48}", "{ranks: 2}")


@pytest.fixture
def queued(cluster: SlurmPrograms) -> RunFolder:
    """A run whose first attempt is at work, and has queued the second one."""
    (cluster.home / "site.yaml").write_text((cluster.home / "site.yaml").read_text() + "kill_after: 1s\n")
    assert main(["submit", str(cluster.home / "run.yaml")]) == 0
    (folder,) = (cluster.home / "runs").iterdir()
    run = RunFolder(folder)
    ledger.append(run.ledger, Started(1, "1", ("n1",), (2, 1)))
    submit.later(derive(plan_files.read_first(run, 1), [], 2, Changes()), run, None, follows=1)
    cluster.program("squeue", "echo '1|RUNNING||n1'; echo '2|PENDING|Priority|'")
    return run


def test_a_queued_attempt_makes_no_running_run_pending_unless_its_job_is_gone(
    queued: RunFolder, cluster: SlurmPrograms
) -> None:
    (view,) = views([queued], fresh=True)
    assert (view.state, view.attempt, view.job, view.hosts) == (State.RUNNING, 1, "1", ("n1",))
    (newest,) = views([queued], fresh=True, newest=True)
    assert (newest.state, newest.attempt, newest.job) == (State.PENDING, 2, "2")
    cluster.program("squeue", "echo '2|PENDING|Priority|'")
    (view,) = views([queued], fresh=True)
    assert (view.state, view.attempt) == (State.PENDING, 2)


def test_both_attempts_are_cancelled(
    queued: RunFolder, cluster: SlurmPrograms, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cancel, "NOTICED_S", -1.0)
    cluster.program("scancel", f'echo "$@" >> {cluster.home}/cancelled')
    assert main(["cancel", queued.run_id]) == 0
    assert (cluster.home / "cancelled").read_text().split() == ["1", "2"]


def test_a_run_with_a_queued_attempt_is_resumed_by_force_alone_and_after_that_attempt(
    queued: RunFolder, cluster: SlurmPrograms, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume", queued.run_id]) == 2
    assert "is PENDING" in capsys.readouterr().err
    assert main(["resume", queued.run_id, "--force"]) == 0
    assert queued.attempt(3).folder.exists()
    intent = [json.loads(line) for line in queued.ledger.read_text().splitlines()]
    assert [event.get("follows") for event in intent if event["event"] == "submitting"] == [None, 1, None]


def test_the_logs_of_a_queued_attempt_say_that_it_waits(queued: RunFolder, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()
    main(["logs", queued.run_id, "--attempt", "2"])
    said = capsys.readouterr()
    assert "rank 0 has not begun: attempt 2 is PENDING" in said.out + said.err
