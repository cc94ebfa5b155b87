"""The runs that an attempt waits for, and what follows if they end before it begins."""

from __future__ import annotations

from pathlib import Path

from torusrun.orchestrator.base.states import State, Status, never_starts
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.events import Ended, Event, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.record import Record


def unmet(events: list[Event], attempt: int) -> tuple[str, State | None] | None:
    """(a run that the attempt waits for and that did not complete, its state); None if there is none.

    The state is None if the ledger of that run records no end.
    """
    submitting = last(events, Submitting, attempt)
    for folder in submitting.after if submitting else ():
        theirs = ledger.events(RunFolder(Path(folder)).ledger)
        newest = max((event.attempt for event in theirs if isinstance(event, Ended)), default=0)
        end = last(theirs, Ended, newest)
        state = end.state if end else None
        if state is not State.COMPLETED:
            return Path(folder).name, state
    return None


def held(record: Record, job: Status | None) -> Status | None:
    """The scheduler's state of the run's job, with advice if the job would be held forever.

    A scheduler never starts a job that waits for another one, if that ended before it began.
    """
    run = _ended_before_it_began(record.events, record.attempt) if job and job.held and record.mine else None
    if job is None or run is None:
        return job
    return never_starts(f"{job.reason}, and {run} ended before it began: cancel this run, and submit it again")


def _ended_before_it_began(events: list[Event], attempt: int) -> str | None:
    """A run that the attempt waits for and whose job ended before it began; None if there is none."""
    submitting = last(events, Submitting, attempt)
    if submitting is None:
        return None
    for folder in (*submitting.after, *submitting.after_any):
        theirs = ledger.events(RunFolder(Path(folder)).ledger)
        # A job does not wait for attempts that were submitted after it.
        jobs = [e.attempt for e in theirs if isinstance(e, Submitted) and e.time_s <= submitting.time_s]
        if jobs and last(theirs, Ended, max(jobs)) and not last(theirs, Started, max(jobs)):
            return Path(folder).name
    return None
