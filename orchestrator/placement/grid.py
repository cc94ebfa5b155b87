"""The logical X x Y arrangement of ranks."""

from __future__ import annotations

from dataclasses import dataclass


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
    """The grid asked for, or rows as long as a node has ranks.

    Raises ValueError, listing the shapes that do fit, when the grid asked for does not hold exactly `ranks`.
    """
    grid = Grid(*asked) if asked else Grid(ranks_per_node, ranks // ranks_per_node)
    if grid.ranks != ranks:
        fitting = ", ".join(f"{x}x{ranks // x}" for x in range(1, ranks + 1) if ranks % x == 0)
        raise ValueError(f"a grid of {grid} has {grid.ranks} ranks, the run has {ranks}; these fit: {fitting}")
    return grid
