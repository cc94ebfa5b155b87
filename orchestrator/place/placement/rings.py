"""The load model of a grid: the bytes of one all-reduce between each pair of nodes.

The ranks are a grid of `dims` = (X, Y), or of more levels such as (GPUs of a node, nodes of a rack, racks); the first
varies fastest. Level i reduce-scatters along its rings, the last level all-reduces, and the way back all-gathers (2-D
torus: Mikami et al. 2018, arXiv 1811.05233; any number of levels: Cho et al. 2019, BlueConnect, MLSys). On level i a
rank holds n / (d_1 ... d_(i-1)) of the n bytes of the gradient. A ring over d ranks passes (d-1)/d of a rank's part
over every hop, once to reduce and once to gather (ring bound: Patarasuk and Yuan 2009). So every hop of a ring of level
i carries, in the ring's direction,

    2 (d_i - 1) / d_i / (d_1 ... d_(i-1))    bytes per byte of gradient.

A node holds `ranks_per_node` consecutive ranks, and is a *position* of the torus. Hops inside a node load no network
link; a hop between two positions loads every link on the path between their hosts, upwards on one side and downwards on
the other. A ring enters a set of nodes as often as it leaves it, so both directions of a link carry the same load.
Phases follow one another, so `Rings.levels` separates the levels; a pipelined all-reduce has all of them at once.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from math import prod

Flows = dict[tuple[int, int], float]


@dataclass(frozen=True)
class Rings:
    """The rings of a grid of `dims` on nodes of `ranks_per_node`. Raises ValueError unless ranks fill whole nodes."""

    dims: tuple[int, ...]
    ranks_per_node: int

    def __post_init__(self) -> None:
        if self.ranks % self.ranks_per_node:
            raise ValueError(f"{self.ranks} ranks do not fill nodes of {self.ranks_per_node}")

    @cached_property
    def ranks(self) -> int:
        return prod(self.dims)

    @property
    def positions(self) -> int:
        return self.ranks // self.ranks_per_node

    def hop(self, level: int) -> float:
        """Bytes per byte of gradient over each hop of each ring of a level."""
        return 2 * (self.dims[level] - 1) / self.dims[level] / self.stride(level)

    def stride(self, level: int) -> int:
        """The distance in ranks between neighbours of a level."""
        return prod(self.dims[:level])

    @cached_property
    def levels(self) -> tuple[Flows, ...]:
        """For every level: bytes per byte of gradient from one position to another."""
        return tuple(self._flows(level) for level in range(len(self.dims)))

    def _flows(self, level: int) -> Flows:
        size, stride, per_node, hop = self.dims[level], self.stride(level), self.ranks_per_node, self.hop(level)
        flows: Flows = defaultdict(float)
        if size == 1:
            return {}
        for rank in range(self.ranks):
            last = (rank // stride) % size == size - 1
            neighbour = rank - (size - 1) * stride if last else rank + stride
            if rank // per_node != neighbour // per_node:
                flows[rank // per_node, neighbour // per_node] += hop
        return dict(flows)

    @cached_property
    def torus(self) -> tuple[int, int, float, float] | None:
        """(Row length, rows, bytes over a hop of a row, of a column) if the positions are themselves a 2-D torus.

        A ring of positions is a torus with rows of one position. None if nodes span rows.
        """
        dims, per_node = list(self.dims), self.ranks_per_node
        inside, levels = 1, list(range(len(dims)))
        while levels and dims[levels[0]] * inside <= per_node and per_node % (dims[levels[0]] * inside) == 0:
            inside *= dims[levels.pop(0)]
        if not levels or len(levels) > 2:
            return None
        part, rest = divmod(per_node, inside)
        if rest or dims[levels[0]] % part:
            return None
        hops = [self.hop(level) * inside for level in levels]
        if len(levels) == 1:
            return 1, dims[levels[0]] // part, 0.0, hops[0]
        return dims[levels[0]] // part, dims[levels[1]], hops[0], hops[1] * part

    @cached_property
    def neighbours(self) -> tuple[dict[int, float], ...]:
        """For every position its neighbours, and the mean of the bytes to and from each, over all levels."""
        beside: list[dict[int, float]] = [defaultdict(float) for _ in range(self.positions)]
        for flows in self.levels:
            for (a, b), bytes_ in flows.items():
                beside[a][b] += bytes_ / 2
                beside[b][a] += bytes_ / 2
        return tuple(map(dict, beside))
