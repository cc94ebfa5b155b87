"""The file by which rank 0 of a script shows that it makes progress (docs/guides/hangs.md)."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path

from torusrun.training.reporting.heartbeat import AGAIN_S


class HeartbeatFile:
    """Writes each new activity at once, and the newest step every AGAIN_S; nothing without a `path`."""

    def __init__(self, path: Path | None) -> None:
        self._path, self._due_s = path, 0.0

    def step(self, number: int) -> None:
        """So many steps are done."""
        if (now_s := time.monotonic()) >= self._due_s:
            self._due_s = now_s + AGAIN_S
            self._write(str(number))

    def begins(self, activity: str) -> None:
        """Something begins that may take longer than steps."""
        self._due_s = 0.0
        self._write(activity)

    def _write(self, word: str) -> None:
        if self._path:
            with suppress(OSError):  # a full disk costs no training
                self._path.write_text(word)
