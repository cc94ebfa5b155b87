"""What is said of a run that its scheduler holds until others end."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from tests.unit.run_folders import make, write_specs
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
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
