"""Keeps the newest activity of the training in the attempt's folder, without more than one write per second."""

from __future__ import annotations

from pathlib import Path

from torusrun.orchestrator.run.folder.beat import Beat

EVERY_S = 1.0
NEVER = float("inf")


class BeatFile:
    """The file at `path`; times are of time.monotonic()."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._pending: Beat | None = None
        self._written_s = -NEVER

    def put(self, beat: Beat) -> None:
        """Keep a record until it is due."""
        self._pending = beat

    @property
    def due_s(self) -> float:
        """When the newest record has to be written; infinite if it is."""
        return self._written_s + EVERY_S if self._pending else NEVER

    def look(self, now_s: float) -> None:
        """Write the newest record if it is due."""
        if self._pending and now_s >= self.due_s:
            self._pending.write(self._path)
            self._pending, self._written_s = None, now_s
