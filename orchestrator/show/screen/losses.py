"""The losses of a run, read as they are written."""

from __future__ import annotations

import os
from pathlib import Path

from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.show.logs.source import FollowedFile

MOST_POINTS = 4096
MOST_BYTES = 4 << 20  # of earlier metrics: the curve shows the newest


class Losses:
    """The losses over the steps. Steps that an attempt repeats after a resume replace the earlier ones."""

    def __init__(self, path: Path) -> None:
        self._file = FollowedFile("", path)
        try:
            found = os.lstat(path)
        except OSError:  # there are no metrics yet
            found = None
        if found:
            self._file.begin(found.st_ino, max(found.st_size - MOST_BYTES, 0))
        self.points: list[tuple[float, float]] = []

    def read(self) -> list[tuple[float, float]]:
        """All points, (step, loss), including new ones."""
        for line in self._file.new(whole=True):
            row = metrics.row_of(line.text.encode(errors="replace"))
            if row and row["event"] == "step" and "step" in row and row.get("loss") is not None:
                self._add(float(row["step"]), float(row["loss"]))
        return self.points

    def _add(self, step: float, loss: float) -> None:
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
        self.points.append((step, loss))
        if len(self.points) > MOST_POINTS:  # merge neighbours into one point
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [(later, (one + other) / 2) for (_, one), (later, other) in pairs]
