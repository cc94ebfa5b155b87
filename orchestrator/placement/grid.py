"""The logical X x Y arrangement of ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

LISTED = 12  # shapes that a message offers


@dataclass(frozen=True)
class Grid:
    """Rows of `x` ranks, columns of `y`; rank = row * x + position in the row."""

    x: int
    y: int

    @property
    def ranks(self) -> int:
        return self.x * self.y

    def __str__(self) -> str:
        return f"{self.x}x{self.y}"


def choose(ranks: int, ranks_per_node: int, asked: tuple[int, int] | None) -> Grid:
    """The requested grid; by default, one row per node.

    Raises ValueError, listing shapes that do fit, when the grid asked for does not hold exactly `ranks`.
    """
    grid = Grid(*asked) if asked else Grid(ranks_per_node, ranks // ranks_per_node)
    if grid.ranks != ranks:
        rows = divisors(ranks)
        nearest = sorted(sorted(rows, key=lambda x: abs(math.log(x / grid.x)))[:LISTED])
        fitting = ", ".join(f"{x}x{ranks // x}" for x in nearest)
        most = f" (the nearest of {len(rows)})" if len(rows) > LISTED else ""
        raise ValueError(f"a grid of {grid} has {grid.ranks} ranks, the run has {ranks}; these fit: {fitting}{most}")
    return grid


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, in order."""
    small = [d for d in range(1, math.isqrt(number) + 1) if number % d == 0]
    return sorted({*small, *(number // d for d in small)})
