"""A curve as a value: its points, and how both axes are written; drawn as an area of characters."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

BLOCKS = " ▁▂▃▄▅▆▇█"
ASCII = " .:#"
LABEL = 10  # columns for the numbers on the left

Points = Sequence[tuple[float, float]]
Show = Callable[[float], str]


def share(value: float, ends: tuple[float, float]) -> float:
    """The position of a value between the ends: 0 to 1."""
    low, high = ends
    return (value - low) / (high - low) if high > low else 0.0


@dataclass(frozen=True)
class Curve:
    """At least one point, in the order of x; `show_x` and `show_y` write the values of an axis."""

    points: Points
    show_x: Show = "{:g}".format
    show_y: Show = "{:g}".format

    def area(self, width: int, height: int, marks: str = BLOCKS) -> list[str]:
        """The curve as an area: the mean of the points in each column, above the smallest of these means.

        All columns have equal parts of the range of x; a column without a point repeats the column before.
        """
        means = self._means(min(width, len(self.points)))
        parts, ends = len(marks) - 1, (min(means), max(means))
        levels = [1 + round(share(mean, ends) * (height * parts - 1)) for mean in means]
        rows = range(height - 1, -1, -1)
        return ["".join(marks[min(max(level - row * parts, 0), parts)] for level in levels).rstrip() for row in rows]

    def framed(self, rows: Sequence[str]) -> list[str]:
        """The drawn rows with the largest and the smallest value on the left."""
        values = [y for _, y in self.points]
        labels = [self.show_y(max(values)), *[""] * (len(rows) - 2), self.show_y(min(values))]
        return [f"{label[: LABEL - 1]:>{LABEL - 1}} {row}".rstrip() for label, row in zip(labels, rows, strict=True)]

    def foot(self, name: str, width: int) -> str:
        """The line below the curve: a name, and both ends of x over `width` columns."""
        first, last = map(self.show_x, self._across)
        return f"{name:>{LABEL - 1}} {first}{last:>{max(width - len(first), len(last) + 1)}}"

    @property
    def _across(self) -> tuple[float, float]:
        values = [x for x, _ in self.points]
        return min(values), max(values)

    def _means(self, width: int) -> list[float]:
        """The mean of the values in each of `width` columns."""
        columns: list[list[float]] = [[] for _ in range(width)]
        for x, y in self.points:
            columns[min(int(share(x, self._across) * width), width - 1)].append(y)
        means: list[float] = []
        for column in columns:
            means.append(sum(column) / len(column) if column else means[-1])
        return means
