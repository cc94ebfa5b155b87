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
from torusrun.orchestrator.run.attempts import submit
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Changes, Ended, Event, Refused, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import derive
from torusrun.orchestrator.run.state import attempts
from torusrun.orchestrator.run.state.depends import held_forever
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


# Which attempt of a run is the newest.


FIRST: list[Event] = [Submitting(1, "x.1"), Submitted(1, "7"), Started(1, "7", ("n1",))]
SECOND: list[Event] = [Submitting(2, "x.2"), Submitted(2, "8")]


@pytest.mark.parametrize(
    ("events", "newest"),
    [([], 1), (FIRST, 1), ([*FIRST, *SECOND], 2), ([*FIRST, *SECOND, Refused(2, "no such queue")], 1)],
)
def test_the_ledger_says_which_attempt_is_the_newest(events: list[Event], newest: int) -> None:
    assert attempts.newest(events, []) == newest


@pytest.fixture
def cluster(home: Path, monkeypatch: pytest.MonkeyPatch) -> SlurmPrograms:
    return SlurmPrograms(home, monkeypatch, "nodes: 1\ntrain: {batch: 48}", "{ranks: 2}")


@pytest.fixture
def queued(cluster: SlurmPrograms) -> RunFolder:
    """A run whose first attempt has ended, and has queued the second one."""
    (cluster.home / "site.yaml").write_text((cluster.home / "site.yaml").read_text() + "kill_after: 1s\n")
    assert main(["submit", str(cluster.home / "run.yaml")]) == 0
    (folder,) = (cluster.home / "runs").iterdir()
    run = RunFolder(folder)
    ledger.append(run.ledger, Started(1, "1", ("n1",), (2, 1)))
    ledger.append(run.ledger, Ended(1, State.OOM, "no memory"))
    submit.later(derive(plan_files.read_first(run, 1), [], 2, Changes()), run, None, follows=1)
    cluster.program("squeue", "echo '2|PENDING|Priority|'")
    return run


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
