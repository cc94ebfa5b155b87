"""Choose the grid of a run: place its shapes of one to three levels on the hosts, and compare their all-reduces."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.cluster.model import Cluster
from orchestrator.placement.arrange import Arrangement, arrange
from orchestrator.placement.grid import divisors
from orchestrator.placement.timing import timing

GRADIENT_BYTES = 51_114_064  # of ResNet-50 in fp16: 2 x 25,557,032 parameters [verified]
Backend = Literal["nccl", "gloo"]


@dataclass(frozen=True)
class Choice:
    """A shape on its hosts, the time of its all-reduce, and in a few words why it is there."""

    arrangement: Arrangement
    total_s: float
    reason: str = ""

    @property
    def dims(self) -> tuple[int, ...]:
        return self.arrangement.rings.dims


def choices(
    hosts: Sequence[str],
    ranks_per_node: int,
    cluster: Cluster,
    gradient_bytes: float = GRADIENT_BYTES,
    backend: Backend = "nccl",
    nodes: int | None = None,
) -> list[Choice]:
    """The best shapes of one to three levels, the fastest first; `nodes` of the hosts are used, all by default."""
    count = nodes or len(dict.fromkeys(hosts))
    found = []
    for dims in shapes(count, ranks_per_node):
        placed = arrange(dims, hosts, ranks_per_node, cluster, effort=0)
        time = timing(placed.rings, cluster, placed.hosts)
        total_s = time.gloo_s(gradient_bytes) if backend == "gloo" else time.nccl_s(gradient_bytes)
        found.append(Choice(placed, total_s, f"{total_s * 1e3:.3g} ms"))
    return sorted(found, key=lambda choice: (choice.total_s, len(choice.dims), choice.dims))


def best(
    hosts: Sequence[str],
    ranks_per_node: int,
    cluster: Cluster,
    gradient_bytes: float = GRADIENT_BYTES,
    backend: Backend = "nccl",
    nodes: int | None = None,
) -> Choice:
    """The fastest shape with its hosts in order: what `grid: auto` takes.

    The same hosts give the same answer. Raises SiteError when the cluster does not know one of them.
    """
    return choices(hosts, ranks_per_node, cluster, gradient_bytes, backend, nodes)[0]


def shapes(nodes: int, ranks_per_node: int) -> list[tuple[int, ...]]:
    """Shapes of one to three levels in which a row is whole nodes; levels of one rank are left out."""
    ranks = nodes * ranks_per_node
    return sorted({tuple(d for d in dims if d > 1) or (1,) for dims in _splits(nodes, ranks_per_node)} | {(ranks,)})


def _splits(nodes: int, ranks_per_node: int) -> Iterator[tuple[int, ...]]:
    for row in divisors(nodes):
        yield row * ranks_per_node, nodes // row
        yield ranks_per_node, row, nodes // row
