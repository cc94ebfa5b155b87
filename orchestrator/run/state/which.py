"""The newest attempt of a run, and its working attempt."""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.run.folder import attempt_folders, ledger
from torusrun.orchestrator.run.folder.events import Ended, Event, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.run_folder import RunFolder


def newest(events: Sequence[Event], folders: Sequence[int]) -> int:
    """The number of the newest attempt: of those in the ledger and of folders that the ledger does not name.

    An attempt gets its folder before it is submitted. One with neither folder nor job was never submitted.
    """
    standing = ledger.standing(events)
    valid = {number for number, stands in standing.items() if stands}
    submitted = {event.attempt for event in events if isinstance(event, (Submitted, Started, Ended))}
    unknown = {number for number in folders if number not in standing}
    made = {number for number in valid if number in submitted or number in folders}
    return max(made | unknown, default=1)


def newest_of(run: RunFolder) -> int:
    """The newest attempt of a run."""
    return newest(ledger.events(run.ledger), attempt_folders.attempts(run))


def working(run: RunFolder, events: Sequence[Event], attempt: int) -> int:
    """The working attempt: this one, or an earlier one that has queued it and has not ended."""
    intent = last(events, Submitting, attempt)
    before = intent.follows if intent else 0
    if not 0 < before < attempt or last(events, Started, attempt) or _has_ended(run, events, before):
        return attempt
    return working(run, events, before)


def _has_ended(run: RunFolder, events: Sequence[Event], attempt: int) -> bool:
    return last(events, Ended, attempt) is not None or run.attempt(attempt).end.exists()
