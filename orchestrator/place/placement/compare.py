"""Compares an arrangement with other orders of the same hosts: by name, by switch, and random."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from torusrun.orchestrator.place.cost.algorithms import TORUS, cost_of
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement.arrange import Arrangement
from torusrun.orchestrator.place.placement.load import loads
from torusrun.orchestrator.place.placement.timing import HostsLayout
from torusrun.training.recipe.train import SyncKeys

SHUFFLES = range(5)


@dataclass(frozen=True)
class OrderRow:
    """An order, its loads, and its predicted all-reduce; a bound has no hop-bytes."""

    order: str
    all_reduce_s: float
    largest_s_per_byte: float
    hop_bytes: float | None
    hottest: str


def rows(
    arrangement: Arrangement, cluster: Cluster, gradient_bytes: float, backend: Backend, sync: SyncKeys = TORUS
) -> Iterator[OrderRow]:
    """The order by the network, the alphabetical one, the median of random ones, that by switch, and the two bounds."""
    rings = arrangement.rings

    def row(order: str, hosts: Sequence[str]) -> OrderRow:
        found = loads(rings.levels, cluster, hosts)
        hottest = f"{found.hottest.kind} {found.hottest.name}" if found.hottest else "none"
        cost = cost_of(sync, HostsLayout(cluster, hosts, rings.ranks_per_node, backend), rings.dims)
        return OrderRow(order, cost(gradient_bytes), found.largest_s_per_byte, found.hop_bytes, hottest)

    chance = random.Random(0)
    shuffled = [row("random (median)", chance.sample(arrangement.hosts, len(arrangement.hosts))) for _ in SHUFFLES]
    yield row("by the network", arrangement.hosts)
    yield row("alphabetical", sorted(arrangement.hosts))
    yield sorted(shuffled, key=lambda row: row.all_reduce_s)[len(SHUFFLES) // 2]
    yield row("by switch", by_switch(arrangement.hosts, cluster))
    for name, s_per_byte in (
        ("bound of this grid", arrangement.grid_bound_s_per_byte),
        ("bound of any scheme", arrangement.cut_bound_s_per_byte),
    ):
        yield OrderRow(name, s_per_byte * gradient_bytes, s_per_byte, None, "")


def by_switch(hosts: Sequence[str], cluster: Cluster) -> list[str]:
    """The hosts leaf by leaf, within a leaf by name: as srun numbers tasks in Slurm 26.05.

    Its plug-ins rank hosts by the number of their leaf switch or block; equal ranks keep the order of the node table,
    which is that of names (topology_p_get_rank and _task_layout_topo, 26.05.3 [verified]).
    """
    place = {name: i for i, name in enumerate(cluster.switch)}
    return [host.name for host in sorted(cluster.in_order(hosts), key=lambda host: place[host.leaf])]
