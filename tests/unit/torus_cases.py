"""Clusters for the tests of placement, and the best placement found by trying all."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator, Sequence

from torusrun.orchestrator.place.hosts.model import Cluster, Host, Link, NodeType, Switch
from torusrun.orchestrator.place.placement.fabric import fabric
from torusrun.orchestrator.place.placement.problem import Cost, PlacementProblem
from torusrun.orchestrator.place.placement.rings import Rings

NODE = Link(25e9, 5e-6)


def racks(sizes: Sequence[int], share: float = 1 / 3, whole: int | None = None) -> Cluster:
    """Racks of so many hosts; an uplink carries `share` of what `whole` nodes (default: those there) send."""
    top = Switch("top")
    leaves = [
        Switch(f"r{i}", "top", Link(NODE.bandwidth_bytes_per_s * (whole or n) * share)) for i, n in enumerate(sizes)
    ]
    hosts = [Host(f"r{i}n{j:02}", f"r{i}", NODE, 4) for i, n in enumerate(sizes) for j in range(n)]
    return Cluster(NodeType(4, (), NODE, Link(50e9, 3e-6)), tuple(hosts), (top, *leaves), "the test")


def names(cluster: Cluster) -> list[str]:
    return [host.name for host in cluster.hosts]


def problem(dims: Sequence[int], cluster: Cluster, order: Sequence[str], ranks_per_node: int = 4) -> PlacementProblem:
    return PlacementProblem(Rings(tuple(dims), ranks_per_node), fabric(cluster, cluster.only(order)))


def every(counts: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """All ways to put kinds on positions."""
    if not any(counts):
        yield ()
        return
    for kind, left in enumerate(counts):
        if left:
            rest = [n - (k == kind) for k, n in enumerate(counts)]
            yield from ((kind, *others) for others in every(rest))


def cheapest(asked: PlacementProblem) -> Cost:
    """The exhaustive optimum. On a torus position 0 may hold any kind: moving all along changes nothing."""
    ways = every(asked.fabric.counts)
    if asked.rings.torus:
        first = max(range(len(asked.fabric.counts)), key=asked.fabric.counts.__getitem__)
        ways = itertools.filterfalse(lambda kinds: kinds[0] != first, ways)
    return min(map(asked.cost, ways))


def grids(ranks: int) -> list[tuple[int, int]]:
    return [(x, ranks // x) for x in range(1, ranks + 1) if ranks % x == 0]


def shuffled(cluster: Cluster, seed: int) -> list[str]:
    order = names(cluster)
    random.Random(seed).shuffle(order)
    return order
