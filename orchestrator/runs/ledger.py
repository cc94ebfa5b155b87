"""The ledger: what happened to a run, one JSON line per event, only ever appended to.

Events: submitting, submitted, refused, started, ended, cancel_requested, unordered. The login node and the job both
write; each line is one locked, synchronized append, so that neither loses the other's on a shared file system that
honours locks. A line that is not whole, or says what no event can say, is left out.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import SiteError
from orchestrator.private import open_regular
from orchestrator.runs.files import parsed
from orchestrator.runs.lines import last_lines
from orchestrator.states import State

LARGEST_BYTES = 4 * 1024 * 1024
LARGEST_ATTEMPT = 99_999
JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@\[\]-]{0,199}")
ENDS = {state.value for state in State if state.over}
# What the details of an event must be for the event to be believed.
TEXTS = {"submitting": ("name",), "refused": ("reason",), "ended": ("state", "reason")}
MAKE_AN_ATTEMPT = ("submitting", "submitted", "started", "refused")


@dataclass(frozen=True)
class Event:
    """One line of the ledger."""

    time_s: float
    kind: str
    attempt: int
    details: dict[str, Any]


def append(ledger: Path, kind: str, attempt: int, **details: Any) -> None:
    """Add an event. Raises SiteError when the disk does not take it."""
    line = json.dumps({"t": round(time.time(), 3), "event": kind, "attempt": attempt, **details}) + "\n"
    try:
        descriptor = open_regular(ledger, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: appending is still what it does best
                fcntl.lockf(descriptor, fcntl.LOCK_EX)
            text = _after_torn(descriptor) + line.encode()
            if os.write(descriptor, text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SiteError(f"{ledger}: cannot be written: {error.strerror}") from None


def _after_torn(descriptor: int) -> bytes:
    """A line break where a full disk cut the last line short."""
    size = os.fstat(descriptor).st_size
    return b"\n" if size and os.pread(descriptor, 1, size - 1) != b"\n" else b""


def events(ledger: Path) -> list[Event]:
    """All events in order, as far as they can be read."""
    return read(ledger)[0]


def read(ledger: Path) -> tuple[list[Event], str]:
    """All events in order, and what is damaged in words, '' when nothing is. Of a huge ledger the end is read."""
    try:
        lines, rest = last_lines(ledger, LARGEST_BYTES)
    except FileNotFoundError:
        return [], "it is missing"
    except OSError as error:
        return [], f"it cannot be read: {error.strerror}"
    read = [_event(line) for line in (*lines, rest) if line.strip()]
    found = [event for event in read if event]
    bad = len(read) - len(found)
    if not read:
        return [], "it is empty"
    return found, f"{bad} of {len(read)} lines cannot be read" if bad else ""


def _event(line: bytes) -> Event | None:
    """The event in a line, None where it is not whole."""
    try:
        value = parsed(line)
        time_s, kind, attempt = value.pop("t"), value.pop("event"), value.pop("attempt")
    except (ValueError, AttributeError, KeyError, TypeError):
        return None
    if type(time_s) not in (int, float) or not 0 <= time_s < 1e12 or type(kind) is not str:
        return None
    if type(attempt) is not int or not 1 <= attempt <= LARGEST_ATTEMPT or not _believable(kind, value):
        return None
    return Event(float(time_s), kind, attempt, value)


def _believable(kind: str, details: dict[str, Any]) -> bool:
    """Whether an event has the details that its readers rely on."""
    if not all(type(details.get(key)) is str for key in TEXTS.get(kind, ())):
        return False
    if (kind in ("submitted", "started") or "job" in details) and not is_job_id(details.get("job")):
        return False
    if kind == "started" and not are_texts(details.get("hosts")):
        return False
    if "after" in details and not are_texts(details["after"]):
        return False
    return kind != "ended" or details.get("state") in ENDS


def is_job_id(value: object) -> bool:
    """Whether a value may be handed to a scheduler's commands as the id of a job."""
    return type(value) is str and JOB_ID.fullmatch(value) is not None


def are_texts(value: object) -> bool:
    """Whether a value is a list of texts."""
    return type(value) is list and all(type(host) is str for host in value)


def last(found: Sequence[Event], kind: str, attempt: int) -> Event | None:
    """The newest event of a kind in an attempt."""
    return next((e for e in reversed(found) if e.kind == kind and e.attempt == attempt), None)


def standing(found: Sequence[Event]) -> dict[int, bool]:
    """Every attempt that was made, and whether it stands: it does unless the last that was said of it is `refused`."""
    attempts = {event.attempt: True for event in found if event.kind == "ended"}
    attempts.update((event.attempt, event.kind != "refused") for event in found if event.kind in MAKE_AN_ATTEMPT)
    return attempts
