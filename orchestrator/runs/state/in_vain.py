"""Whether the attempts of a run that keeps going make progress. Pure functions of the ledger."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.base.states import Cause
from orchestrator.runs.folder.events import Ended, Event, Submitting
from orchestrator.runs.folder.ledger import last


def in_vain(events: Sequence[Event], attempt: int, newest: str | None) -> int:
    """How many attempts in a row, up to `attempt`, made no new checkpoint; `newest` is the newest checkpoint now.

    Only attempts since the user's last submission count.
    """
    count = 0
    for number in _same_submission(events, attempt):
        intent = last(events, Submitting, number)
        if intent is None or intent.resumes != newest:
            break
        count += 1
    return count


def same_error(events: Sequence[Event], attempt: int) -> bool:
    """Whether this attempt and the one before it ended by an error of the program, after the same step and alike."""
    two = [last(events, Ended, number) for number in _same_submission(events, attempt)][:2]
    ends = [end for end in two if end and end.cause is Cause.PROGRAM and end.evidence.get("said")]
    return len(ends) == 2 and ends[0].step == ends[1].step and ends[0].evidence["said"] == ends[1].evidence["said"]


def first_of_submission(events: Sequence[Event], attempt: int) -> int:
    """The attempt that a client submitted and that was followed, without its user, by others up to `attempt`."""
    return list(_same_submission(events, attempt))[-1]


def _same_submission(events: Sequence[Event], attempt: int) -> Iterator[int]:
    """This attempt and, newest first, those before it that it follows without its user."""
    while attempt:
        yield attempt
        intent = last(events, Submitting, attempt)
        attempt = intent.follows if intent and intent.follows < attempt else 0
