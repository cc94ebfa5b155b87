"""The state of an attempt whose job its scheduler does not know, from the run folder."""

from __future__ import annotations

from orchestrator.base.states import State, Status
from orchestrator.runs.folder import claim
from orchestrator.runs.folder.end_words import ended
from orchestrator.runs.folder.events import Started
from orchestrator.runs.folder.how_ended import How
from orchestrator.runs.folder.ledger import last
from orchestrator.runs.state import dependencies
from orchestrator.runs.state.view import Record


def explained(record: Record, status: Status) -> Status:
    """The state of an attempt that seems LOST: still running (UNKNOWN), dropped by its dependency, or LOST.

    Some schedulers forget a job that they dropped before it began.
    """
    if status.state is not State.LOST or not record.mine:
        return status
    attempt = record.folder.attempt(record.attempt)
    if claim.held(attempt):
        lock = attempt.alive.relative_to(record.folder.folder)
        reason = f"its job has left the queue, and yet processes of its ranks are at work: they hold {lock}"
        return Status(State.UNKNOWN, reason)
    unmet = None if last(record.events, Started, record.attempt) else dependencies.unmet(record.events, record.attempt)
    if unmet and unmet[1]:
        return ended(How.DROPPED, awaited=unmet[0], state=unmet[1].value).status
    return status
