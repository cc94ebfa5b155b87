"""The logical arrangement of ranks in one to three levels: rows, columns, racks."""

from __future__ import annotations

import heapq
import math
from dataclasses import dataclass

from torusrun.orchestrator.place.cost.shapes import of_levels
from torusrun.training.counted import counted

LISTED = 12  # shapes in a message
MOST_LEVELS = 3


@dataclass(frozen=True)
class Grid:
    """`dims` are the ranks in a row, the rows in a plane, and the planes: one to three levels.

    The first varies fastest: rank = x + dims[0] * (y + dims[1] * z).
    """

    dims: tuple[int, ...]

    @property
    def ranks(self) -> int:
        return math.prod(self.dims)

    def at(self, rank: int) -> tuple[int, ...]:
        """The position of a rank on each level."""
        positions = []
        for size in self.dims:
            rank, position = divmod(rank, size)
            positions.append(position)
        return tuple(positions)

    def __str__(self) -> str:
        return "x".join(map(str, self.dims))

    @property
    def words(self) -> str:
        """The grid in words, as '2 groups of 16 rows of 4 ranks'."""
        row, *above = self.dims
        if not above:
            return f"{counted(row, 'rank')} in one group"
        groups = [f"{counted(count, name)} of " for count, name in zip(above, ("row", "group"), strict=False)]
        return "".join(reversed(groups)) + counted(row, "rank")


def asked(ranks: int, ranks_per_node: int, dims: tuple[int, ...] | None) -> Grid | None:
    """The grid that a run names; None for `auto` on several nodes, where it is chosen for the hosts.

    `auto` on one node is one level: no link in it is slower than the others, and each level adds a phase. Raises
    ValueError with shapes that fit, unless `dims` hold exactly `ranks`.
    """
    if not dims:
        return Grid((ranks_per_node,)) if ranks == ranks_per_node else None
    grid = Grid(dims)
    if grid.ranks != ranks:
        fitting = list(of_levels(ranks, len(dims)))
        nearest = sorted(heapq.nsmallest(LISTED, fitting, key=lambda shape: _distance(shape, dims)))
        listed = ", ".join(str(Grid(shape)) for shape in nearest)
        most = f" (the nearest of {len(fitting)})" if len(fitting) > LISTED else ""
        raise ValueError(
            f"a grid of {grid} has {counted(grid.ranks, 'rank')}, the run has {ranks}; these fit: {listed}{most}"
        )
    return grid


def _distance(shape: tuple[int, ...], wanted: tuple[int, ...]) -> float:
    return sum(abs(math.log(size / other)) for size, other in zip(shape[:-1], wanted[:-1], strict=True))
