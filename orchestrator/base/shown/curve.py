"""Curves as a value: points by name, and the axes; drawn with letters, or as an area."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import log

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:#"
LABEL = 10  # columns for the numbers on the left

Points = Sequence[tuple[float, float]]


@dataclass(frozen=True)
class Axis:
    """How values along an axis are written, and whether the axis is logarithmic."""

    show: Callable[[float], str] = "{:g}".format
    log: bool = False

    def share(self, value: float, ends: tuple[float, float]) -> float:
        """The position of a value between the ends: 0 to 1."""
        low, high = ends
        if high <= low:
            return 0.0
        return log(value / low) / log(high / low) if self.log else (value - low) / (high - low)


@dataclass(frozen=True)
class Curve:
    """One or more curves by name, each with its points in the order of x. There is at least one point."""

    curves: Mapping[str, Points]
    x: Axis = Axis()
    y: Axis = Axis()

    @property
    def across(self) -> tuple[float, float]:
        return _ends(x for points in self.curves.values() for x, _ in points)

    @property
    def up(self) -> tuple[float, float]:
        return _ends(y for points in self.curves.values() for _, y in points)

    def letters(self, width: int, height: int) -> list[str]:
        """Each curve by the first letter of its name, a single one by '*'; '*' also where several meet."""
        cells = [[" "] * width for _ in range(height)]
        for name, points in self.curves.items():
            mark = name[0] if len(self.curves) > 1 else "*"
            for right, up in self._placed(points):
                row, column = cells[height - 1 - round(up * (height - 1))], round(right * (width - 1))
                row[column] = mark if row[column] in (" ", mark) else "*"
        return ["".join(row).rstrip() for row in cells]

    def area(self, width: int, height: int, marks: str = BLOCKS) -> list[str]:
        """The only curve as an area: the mean of the points in each column, above the smallest of these means.

        All columns have equal parts of the range of x; a column without a point repeats the one before.
        """
        ((_, points),) = self.curves.items()
        means = _means([right for right, _ in self._placed(points)], [y for _, y in points], min(width, len(points)))
        parts, ends = len(marks) - 1, _ends(means)
        levels = [1 + round(self.y.share(mean, ends) * (height * parts - 1)) for mean in means]
        rows = range(height - 1, -1, -1)
        return ["".join(marks[min(max(level - row * parts, 0), parts)] for level in levels).rstrip() for row in rows]

    def framed(self, rows: Sequence[str], edge: str = "") -> list[str]:
        """The drawn rows with the largest and the smallest value on the left."""
        low, high = map(self.y.show, self.up)
        labels = [high, *[""] * (len(rows) - 2), low]
        return [
            f"{label[: LABEL - 1]:>{LABEL - 1}} {edge}{row}".rstrip() for label, row in zip(labels, rows, strict=True)
        ]

    def foot(self, name: str, width: int) -> str:
        """The line below the curve: a name, and both ends of x over `width` columns."""
        first, last = map(self.x.show, self.across)
        return foot(name, first, last, width)

    def _placed(self, points: Points) -> list[tuple[float, float]]:
        """Points as shares of the width and the height."""
        across, up = self.across, self.up
        return [(self.x.share(x, across), self.y.share(y, up)) for x, y in points]


def foot(name: str, first: str, last: str, width: int) -> str:
    """A name and both ends of an axis over `width` columns."""
    return f"{name:>{LABEL - 1}} {first}{last:>{max(width - len(first), len(last) + 1)}}"


def _means(shares: Sequence[float], values: Sequence[float], width: int) -> list[float]:
    """The mean of the values in each of `width` columns; `shares` are the positions of the values."""
    columns: list[list[float]] = [[] for _ in range(width)]
    for share, value in zip(shares, values, strict=True):
        columns[min(int(share * width), width - 1)].append(value)
    means: list[float] = []
    for column in columns:
        means.append(sum(column) / len(column) if column else means[-1])
    return means


def _ends(values: Iterable[float]) -> tuple[float, float]:
    numbers = list(values)
    return min(numbers), max(numbers)
