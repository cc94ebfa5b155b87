"""The ledger: the append-only record of a run's events, one JSON line per event (events.py).

The login node and the job both write. Each line is one locked, synchronized append, so that no line is lost on a shared
file system that honours locks. A reader leaves out a line that is incomplete or is not a valid event.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

from torusrun.orchestrator.base import whole_lines
from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.whole_lines import last_lines
from torusrun.orchestrator.run.folder.events import (
    Ended,
    Event,
    Refused,
    Started,
    Submitted,
    Submitting,
    as_json,
    from_json,
)

LARGEST_BYTES = 64 * 1024 * 1024
MAKE_AN_ATTEMPT = (Submitting, Submitted, Started, Refused)
E = TypeVar("E", bound=Event)


def append(ledger: Path, event: Event) -> None:
    """Append an event. Raises SiteError if it cannot be written."""
    whole_lines.append(ledger, json.dumps(as_json(event)))


def events(ledger: Path) -> list[Event]:
    """All events in order, as far as they can be read."""
    return read(ledger)[0]


def read(ledger: Path) -> tuple[list[Event], str]:
    """(all events in order, the damage in words or ''). Of a huge ledger, only the end is read."""
    try:
        cut = os.stat(ledger).st_size > LARGEST_BYTES
        lines, rest = last_lines(ledger, LARGEST_BYTES)
    except FileNotFoundError:
        return [], "it is missing"
    except OSError as error:
        return [], f"it cannot be read: {error.strerror}"
    parsed_lines = [_event(line) for line in (*lines, rest) if line.strip()]
    events_read = [event for event in parsed_lines if event]
    bad = len(parsed_lines) - len(events_read)
    if not parsed_lines:
        return [], "it is empty"
    damage = f"{bad} of {len(parsed_lines)} lines cannot be read" if bad else ""
    too_large = f"it is larger than {LARGEST_BYTES >> 20} MiB, and its first events are left out" if cut else ""
    return events_read, "; ".join(filter(None, (too_large, damage)))


def _event(line: bytes) -> Event | None:
    """The event in a line; None if it is incomplete or invalid."""
    try:
        return from_json(dict(parsed(line)))
    except (ValueError, TypeError):
        return None


def last(events: Sequence[Event], kind: type[E], attempt: int) -> E | None:
    """The newest event of a kind in an attempt; None if it has none."""
    return next((e for e in reversed(events) if isinstance(e, kind) and e.attempt == attempt), None)


def standing(events: Sequence[Event]) -> dict[int, bool]:
    """Attempt -> whether it is valid: False if Refused is the newest of its events of MAKE_AN_ATTEMPT."""
    attempts = {event.attempt: True for event in events if isinstance(event, Ended)}
    attempts.update(
        (event.attempt, not isinstance(event, Refused)) for event in events if isinstance(event, MAKE_AN_ATTEMPT)
    )
    return attempts
