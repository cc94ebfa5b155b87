"""Choose a grid: place every shape that fits, and compute the time of its all-reduce (`timing`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.cluster.model import Cluster
from orchestrator.placement.arrange import Arrangement, arrange
from orchestrator.placement.timing import timing

GRADIENT_BYTES = 51_114_064  # of ResNet-50 in fp16: 2 x 25,557,032 parameters [verified]
MOST = 24  # shapes that are placed, by construction alone


@dataclass(frozen=True)
class Choice:
    """A shape with the time of its all-reduce."""

    arrangement: Arrangement
    total_s: float

    @property
    def dims(self) -> tuple[int, ...]:
        return self.arrangement.rings.dims


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
        _timed(arrange(dims, hosts, ranks_per_node, cluster, effort=0), cluster, gradient_bytes)
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


def _timed(arrangement: Arrangement, cluster: Cluster, gradient_bytes: int) -> Choice:
    return Choice(arrangement, timing(arrangement.rings, cluster, arrangement.hosts).nccl_s(gradient_bytes))
