"""The ranks as a mesh of one to three levels: rows, columns and racks."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

MOST_LEVELS = 3


class Mesh:
    """Ranks 0 to N-1 laid out as `dims`, 1 to 3 numbers of at least 1 whose product is N; the first varies fastest.

    In a mesh (X, Y, Z) rank = (z * Y + y) * X + x. A group of level 0 is a row: the X ranks with the same (y, z). A
    group of level 1 is a column. A group of level 2 has one rank of every rack. Raises ValueError for other dims.
    """

    def __init__(self, dims: Sequence[int]) -> None:
        self.dims, self.ranks = tuple(dims), prod(dims)
        if not 1 <= len(dims) <= MOST_LEVELS or any(ranks < 1 for ranks in dims):
            raise ValueError(f"a grid has 1 to {MOST_LEVELS} levels of at least 1 rank, not {self}")

    def __str__(self) -> str:
        return " x ".join(map(str, self.dims))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """The coordinate of a rank in each level."""
        found = []
        for ranks in self.dims:
            rank, place = divmod(rank, ranks)
            found.append(place)
        return tuple(found)

    def group(self, level: int, rank: int) -> list[int]:
        """The ranks of the group of a level that contains `rank`, in the order of the group."""
        stride = prod(self.dims[:level])
        first = rank - self.coordinates(rank)[level] * stride
        return [first + stride * i for i in range(self.dims[level])]


def wire_bytes(buffer_bytes: int, dims: Sequence[int]) -> tuple[float, ...]:
    """Bytes that one rank sends in each level to reduce n = `buffer_bytes` by the torus.

    A level of d ranks gets n over the product of the levels before it, and sends 2 (d-1)/d of that: half in the
    reduce-scatter and half in the all-gather. It receives as many bytes. If n does not divide by the ranks, this is the
    mean over them.
    """
    return tuple(2 * (d - 1) / d * buffer_bytes / prod(dims[:level]) for level, d in enumerate(dims))
