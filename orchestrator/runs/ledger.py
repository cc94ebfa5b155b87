"""The ledger: what happened to a run, one JSON line per event, only ever appended to.

Events: submitted, started, ended, cancel_requested. The login node and the job both write; each line is one locked,
synchronized append, so that neither loses the other's on a shared file system that honours locks.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator.errors import SiteError


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
        descriptor = os.open(ledger, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            with contextlib.suppress(OSError):  # a file system without locks: appending is still what it does best
                fcntl.lockf(descriptor, fcntl.LOCK_EX)
            os.write(descriptor, _after_torn(descriptor) + line.encode())
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
    """All events in order. A line that a full disk cut short is left out."""
    try:
        lines = ledger.read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SiteError(f"{ledger}: cannot be read: {error.strerror}") from None
    found = []
    for line in lines:
        try:
            value = json.loads(line)
        except ValueError:
            continue
        found.append(Event(value.pop("t"), value.pop("event"), value.pop("attempt"), value))
    return found


def last(found: list[Event], kind: str, attempt: int) -> Event | None:
    """The newest event of a kind in an attempt."""
    return next((e for e in reversed(found) if e.kind == kind and e.attempt == attempt), None)
