"""The runs that an attempt waits for."""

from __future__ import annotations

from pathlib import Path

from orchestrator.base.states import State
from orchestrator.runs.folder import ledger
from orchestrator.runs.folder.events import Ended, Event, Started, Submitted, Submitting
from orchestrator.runs.folder.ledger import last
from orchestrator.runs.folder.run_folder import RunFolder


def unmet(events: list[Event], attempt: int) -> tuple[str, State | None] | None:
    """(a run that the attempt waits for and that did not complete, its state); None if there is none.

    The state is None if the ledger of that run records no end.
    """
    submitting = last(events, Submitting, attempt)
    for folder in submitting.after if submitting else ():
        ends = [event for event in ledger.events(RunFolder(Path(folder)).ledger) if isinstance(event, Ended)]
        state = ends[-1].state if ends else None
        if state is not State.COMPLETED:
            return Path(folder).name, state
    return None


def ended_before_it_began(events: list[Event], attempt: int) -> str | None:
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
