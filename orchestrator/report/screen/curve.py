"""A curve drawn with characters, and the points of a loss that it is drawn from, read as they are written."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from orchestrator.report.logs.source import FollowedFile
from orchestrator.runs.folder import metrics

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:#"
MOST_POINTS = 4096
MOST_BYTES = 4 << 20  # of metrics that were written before: the curve shows the newest


class Losses:
    """The losses of a run over its steps. What an attempt repeats after a resume replaces what was said before."""

    def __init__(self, path: Path) -> None:
        self._file = FollowedFile("", path)
        try:
            self._file.read_bytes = max(os.lstat(path).st_size - MOST_BYTES, 0)
        except OSError:
            self._file.read_bytes = 0
        self.points: list[tuple[float, float]] = []

    def read(self) -> list[tuple[float, float]]:
        """All points, (step, loss), with those that have come since."""
        for line in self._file.new(whole=True):
            row = metrics.row_of(line.text.encode(errors="replace"))
            if row and row["event"] == "step" and "step" in row and row.get("loss") is not None:
                self._add(float(row["step"]), float(row["loss"]))
        return self.points

    def _add(self, step: float, loss: float) -> None:
        while self.points and self.points[-1][0] >= step:
            self.points.pop()
        self.points.append((step, loss))
        if len(self.points) > MOST_POINTS:  # neighbours become one point
            pairs = zip(self.points[::2], self.points[1::2], strict=False)
            self.points = [(later, (one + other) / 2) for (_, one), (later, other) in pairs]


def curve(points: Sequence[tuple[float, float]], width: int, height: int, *, blocks: bool = True) -> list[str]:
    """`height` lines of at most `width` columns: the mean of the points in each column over the smallest of them all.

    Columns share the range of x alike; one without a point repeats the one before it.
    """
    if not points or width < 1 or height < 1:
        return [""] * max(height, 0)
    values = _columns(points, width)
    low, high = min(values), max(values)
    marks = BLOCKS if blocks else ASCII
    parts = len(marks) - 1
    scale = (height * parts - 1) / (high - low) if high > low else 0.0
    levels = [1 + round((value - low) * scale) for value in values]
    rows = range(height - 1, -1, -1)
    return ["".join(marks[min(max(level - row * parts, 0), parts)] for level in levels).rstrip() for row in rows]


def _columns(points: Sequence[tuple[float, float]], width: int) -> list[float]:
    first, last = points[0][0], points[-1][0]
    width = min(width, len(points))
    found: list[list[float]] = [[] for _ in range(width)]
    for x, y in points:
        found[min(int((x - first) * width / (last - first)), width - 1) if last > first else 0].append(y)
    means: list[float] = []
    for values in found:
        means.append(sum(values) / len(values) if values else means[-1])
    return means
