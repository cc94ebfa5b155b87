"""What happened in training, as JSON lines appended to one file."""

from __future__ import annotations

import json
import math
import os
import sys
import time
from pathlib import Path
from typing import Any

# Nobody leads the lines elsewhere by a link. Without O_NONBLOCK, a pipe in the file's place would stop the training.
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Metrics:
    """Appends events of one attempt; a `path` of None swallows them (every rank but 0).

    A line is one O_APPEND write. A disk that is full costs lines, not the training: one warning, then
    silence.
    """

    def __init__(self, path: Path | None, attempt: int) -> None:
        self._path = path
        self._attempt = attempt
        self._warned = False
        self._torn = False

    def write(self, event: str, **values: Any) -> None:
        """Append one event; numbers that JSON cannot hold (NaN, infinity) become null."""
        if self._path is None:
            return
        record = {"t": round(time.time(), 3), "attempt": self._attempt, "event": event, **values}
        line = json.dumps({key: _finite(value) for key, value in record.items()}, allow_nan=False) + "\n"
        try:
            self._append(self._path, line.encode())
        except OSError as error:
            self._warn(error)

    def _append(self, path: Path, line: bytes) -> None:
        if self._torn:
            line = b"\n" + line
        descriptor = os.open(path, FLAGS, 0o644)
        try:
            written = os.write(descriptor, line)
        finally:
            os.close(descriptor)
        self._torn = written < len(line)

    def _warn(self, error: OSError) -> None:
        if not self._warned:
            print(
                f"training: metrics are being lost, {self._path}: {error.strerror}",
                file=sys.stderr,
                flush=True,
            )
        self._warned = True


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
