"""Which grid: every shape that fits, placed, and costed by its steps and its most loaded links.

The phases of the torus follow one another, so a grid costs, for n bytes, the latency of its serial steps and for every
level the time of that level's own most loaded link:

    sum over levels of  2 (d_i - 1) latency_i  +  n max over links (bytes of the level over the link / its bandwidth)

with the latency of a hop within a node for levels that stay in one. It leaves out what pipelining hides, additions,
and protocol. The fuller model is that of the prediction; this one ranks grids by what placement knows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.cluster.model import Cluster
from orchestrator.placement.arrange import Arrangement, arrange

GRADIENT_BYTES = 51_114_064  # of ResNet-50 in fp16: 2 x 25,557,032 parameters [verified]
MOST = 24  # shapes that are placed, by construction alone


@dataclass(frozen=True)
class Choice:
    """A shape with the time of its all-reduce, seconds, by the model above."""

    arrangement: Arrangement
    latency_s: float
    transfer_s: float

    @property
    def dims(self) -> tuple[int, ...]:
        return self.arrangement.rings.dims

    @property
    def total_s(self) -> float:
        return self.latency_s + self.transfer_s


def choices(
    hosts: Sequence[str],
    ranks_per_node: int,
    cluster: Cluster,
    gradient_bytes: int = GRADIENT_BYTES,
    levels: int = 2,
    nodes: int | None = None,
) -> list[Choice]:
    """The shapes of `levels` levels (2, or 3: node, group of nodes, groups), the cheapest first.

    `nodes` of the hosts are used, all by default.
    """
    count = nodes or len(dict.fromkeys(hosts))
    found = [
        _cost(arrange(dims, hosts, ranks_per_node, cluster, effort=0), cluster, gradient_bytes)
        for dims in shapes(count, ranks_per_node, levels)
    ]
    return sorted(found, key=lambda choice: (choice.total_s, choice.dims))


def shapes(nodes: int, ranks_per_node: int, levels: int) -> list[tuple[int, ...]]:
    """Shapes in which whole nodes make up a row, at most MOST, those nearest to square among nodes kept."""
    rows = [d for d in range(1, nodes + 1) if nodes % d == 0]
    rows.sort(key=lambda d: abs(d * d * ranks_per_node * ranks_per_node - nodes * ranks_per_node))
    kept = sorted({1, *rows[:MOST]})
    if levels == 3:
        return [(ranks_per_node, d, nodes // d) for d in kept if 1 < d < nodes]
    return [(d * ranks_per_node, nodes // d) for d in kept]


def _cost(arrangement: Arrangement, cluster: Cluster, gradient_bytes: int) -> Choice:
    rings, node = arrangement.rings, cluster.node
    latency_s = transfer_s = 0.0
    for level, size in enumerate(rings.dims):
        outside = bool(rings.levels[level])
        latency_s += 2 * (size - 1) * (node.network if outside else node.inside).latency_s
        inside_s = rings.hop(level) / node.inside.bandwidth_bytes_per_s
        transfer_s += gradient_bytes * max(arrangement.loads.phase_s_per_byte(level), inside_s)
    return Choice(arrangement, latency_s, transfer_s)
