"""The files to which rank 0 appends: the metrics of a run, and the trace of an attempt."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

from torusrun.training.reporting.events import LARGEST
from torusrun.training.reporting.output import warn

# A link cannot redirect the lines. Without O_NONBLOCK, a pipe in the file's place would stop the training.
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Appended:
    """Appends lines to `path`; if lines are lost, one warning names `what`."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what
        self._warned = False
        self._torn = False

    def write(self, lines: bytes) -> None:
        """Append whole lines in one write."""
        if self._torn:
            lines = b"\n" + lines
        try:
            with open(os.open(self._path, FLAGS, 0o644), "wb", buffering=0) as file:
                self._torn = os.write(file.fileno(), lines) < len(lines)
        except OSError as error:
            if not self._warned:
                warn(f"training: {self._what} being lost, {self._path}: {error.strerror}")
            self._warned = True


class Metrics:
    """Appends events of one attempt; with a `path` of None it drops them (every rank but 0).

    A line is one O_APPEND write.
    """

    def __init__(self, path: Path | None, attempt: int) -> None:
        self._file = Appended(path, "metrics are") if path else None
        self._attempt = attempt

    def write(self, event: str, **values: Any) -> int:
        """Append one event; its bytes. Numbers that are not finite, or beyond LARGEST, become null."""
        if self._file is None:
            return 0
        record = {"t": round(time.time(), 3), "attempt": self._attempt, "event": event, **values}
        line = json.dumps({key: _finite(value) for key, value in record.items()}, allow_nan=False) + "\n"
        self._file.write(line.encode())
        return len(line.encode())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < LARGEST else value


LINES = 200  # written together


class Trace:
    """Writes lines of JSON to the file at `path`; without one it keeps nothing.

    Values are numbers, text, lists and dicts that the host knows: reading a tensor would wait for the device.
    """

    def __init__(self, path: Path | None) -> None:
        self.active = path is not None
        self._file = Appended(path, "the trace is") if path else None
        self._lines: list[dict[str, Any]] = []
        self._buckets: list[dict[str, object]] = []

    def head(self, **values: Any) -> None:
        """Write a line about the steps that follow: at the start, and after each change."""
        if self.active:
            self._lines.append(values)
            self._buckets = values.get("buckets", self._buckets)

    def buckets(self, buckets: list[dict[str, object]]) -> None:
        """Write a line with the buckets from the next step on, if they have changed."""
        if buckets != self._buckets:
            self.head(buckets=buckets)

    def step(self, **values: Any) -> None:
        """Write the line of the finished step."""
        if self.active:
            self._lines.append(values)
            if len(self._lines) >= LINES:
                self.flush()

    def flush(self) -> None:
        """Write all pending lines: before a checkpoint, and at the end."""
        if self._file and self._lines:
            self._file.write("".join(f"{json.dumps(line)}\n" for line in self._lines).encode())
            self._lines = []
