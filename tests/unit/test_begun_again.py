"""A job that its scheduler begins again, as by `scontrol requeue`, works for the same attempt."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest

from tests.unit.run_folders import DONE, make, write_specs
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.job.recorded import forget_first, recorded, settled_end
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Submitting
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.depends import unmet
from torusrun.orchestrator.run.state.record import read_record

TOLD = End(State.CANCELLED, "told to end by SIGTERM from outside", certain=False)


@pytest.fixture
def run(home: Path) -> RunFolder:
    """A run whose job was told to end from outside, and so does not know why."""
    made = make(write_specs(home), TOLD)
    made.ledger.write_text("".join(made.ledger.read_text().splitlines(keepends=True)[:-1]))
    return made


def test_what_the_first_start_left_says_nothing_of_the_second(run: RunFolder) -> None:
    assert settled_end(run, run.attempt(1)) is None
    forget_first(run, run.attempt(1))
    record = read_record(run)
    assert record.view(record.status(Status(State.RUNNING), time.time()), time.time()).reason == ""
    assert not run.attempt(1).ranks.exists(), "its records would be taken for those of the second one's ranks"


def test_the_first_start_may_still_be_about_to_record_its_end(run: RunFolder) -> None:
    """Its job was put back while it was at work, on another node."""
    run.attempt(1).end.unlink()
    late = threading.Timer(0.1, TOLD.write, [run.attempt(1).end])
    late.start()
    forget_first(run, run.attempt(1))
    late.join()
    assert not run.attempt(1).end.exists()


@pytest.mark.parametrize("by", ["record", "ledger"])
def test_an_attempt_that_has_ended_for_good_is_not_begun_again(run: RunFolder, by: str) -> None:
    """Its user may have resumed the run since."""
    if by == "record":
        DONE.write(run.attempt(1).end)
    else:
        ledger.append(run.ledger, Ended.by(1, DONE))
    before = run.ledger.read_bytes()
    assert recorded(run, run.attempt(1), lambda: pytest.fail("it was begun again")) == DONE
    assert run.ledger.read_bytes() == before


def test_an_end_that_others_found_in_the_same_time_stays(run: RunFolder) -> None:
    """As of a supervisor that was cut off, while another job of the run worked for the next attempt."""
    found = [Ended(1, State.NODE_FAIL, "lost n1"), Ended(2, DONE.state, DONE.reason)]

    def work() -> End:
        for event in found:
            ledger.append(run.ledger, event)
        return End(State.FAILED, "another job works for the run")

    assert recorded(run, run.attempt(1), work).state is State.NODE_FAIL
    ends = [event for event in ledger.events(run.ledger) if isinstance(event, Ended)]
    assert [(end.attempt, end.state) for end in ends] == [(1, State.NODE_FAIL), (2, State.COMPLETED)]
    ledger.append(run.ledger, Ended(1, State.FAILED, "of a job that was silent for a while"))
    assert recorded(run, run.attempt(1), lambda: pytest.fail("it was begun again")).state is State.FAILED
    waits = [Submitting(1, name="waits", after=(str(run.folder),))]
    assert unmet(waits, 1) is None, "the newest attempt counts, whichever is noted last"


def test_completion_replaces_the_loss_that_others_found_out(run: RunFolder) -> None:
    """As of a job whose first host was silent for a while, and went on."""

    def work() -> End:
        ledger.append(run.ledger, Ended(1, State.NODE_FAIL, "the first host is silent"))
        return DONE

    assert recorded(run, run.attempt(1), work) == DONE
    assert settled_end(run, run.attempt(1)) == DONE
    assert unmet([Submitting(1, name="waits", after=(str(run.folder),))], 1) is None
