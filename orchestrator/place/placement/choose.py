"""Chooses the grid of a run: places its shapes of one to three levels on the hosts, and compares their all-reduces.

Every shape is timed on a regular network. The best are placed by construction, and the best of those by `arrange` with
full effort. So a choice takes as long as a grid that the run names. `rows` compares an order with others of its hosts.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import gcd
from statistics import fmean

from torusrun.orchestrator.place.cost.algorithms import TORUS, best_of, cost_of, unchunked_s
from torusrun.orchestrator.place.cost.all_reduce import Backend
from torusrun.orchestrator.place.cost.regular import Level, Network, RegularLayout
from torusrun.orchestrator.place.cost.shapes import shapes
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement.arrange import EFFORT, HUGE, LARGE, Arrangement, Charge, arrange
from torusrun.orchestrator.place.placement.fabric import Fabric, fabric, loads
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.search import LARGEST
from torusrun.orchestrator.place.placement.timing import HostsLayout
from torusrun.training.counted import counted
from torusrun.training.recipe.train import SyncKeys

GRADIENT_BYTES = 51_114_064  # of ResNet-50 in fp16: 2 x 25,557,032 parameters [verified]
FEW_NODES = 32  # up to this number, all shapes are placed by construction
CONSTRUCTED = ((LARGE, 4), (HUGE, 2))  # above it, shapes for each regular network: (below so many nodes, their number)
OVERSUBSCRIBED = 1.05  # a ratio above this is mentioned
PLACED = ((LARGEST, 8), (LARGE, 3))  # (at most so many nodes, number of shapes placed with full effort); beyond: 2
SHUFFLES = range(5)


@dataclass(frozen=True)
class Choice:
    """A shape on its hosts, the time of its all-reduce (also with phases one by one), and the reason in short."""

    arrangement: Arrangement
    total_s: float
    unchunked_s: float = 0.0
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
    sync: SyncKeys = TORUS,
) -> list[Choice]:
    """The best shapes of one to three levels: the safest of the fastest, which `grid: auto` takes, then others by time.

    `nodes` of the hosts are used (default: all). The same hosts give the same answer. Raises SiteError if the cluster
    lacks a host. `sync` names the all-reduce.
    """
    count = nodes or len(dict.fromkeys(hosts))
    row_nodes = _domain_nodes(cluster, hosts, count) if cluster.nvlink else 1
    row = row_nodes * ranks_per_node
    simple = tuple(size for size in (row, count // row_nodes) if size > 1) or (1,)
    candidates = [dims for dims in shapes(count * ranks_per_node) if not cluster.nvlink or dims[0] == simple[0]]
    if count > FEW_NODES:
        networks = _regular(fabric(cluster, cluster.only(hosts)), count, ranks_per_node, cluster)
        most = next((each for nodes, each in CONSTRUCTED if count < nodes), 1)
        best = [_fastest(candidates, RegularLayout(links, backend), gradient_bytes, sync)[:most] for links in networks]
        flat = candidates[:1] if count < HUGE else []
        candidates = list(dict.fromkeys([*flat, simple, *chain(*best)]))

    charge = Charge(gradient_bytes, backend, sync)

    def placed(dims: tuple[int, ...], effort: int) -> Choice:
        arrangement = arrange(dims, hosts, ranks_per_node, cluster, effort, charge)
        cost = cost_of(sync, HostsLayout(cluster, arrangement.hosts, ranks_per_node, backend), dims)
        return Choice(arrangement, cost(gradient_bytes), unchunked_s(cost, gradient_bytes))

    constructed = sorted((placed(dims, 0) for dims in candidates), key=_rank)
    most = next((shapes for nodes, shapes in PLACED if count <= nodes), 2)
    kept = constructed  # of so many hosts as `arrange` places them with full effort
    if count < HUGE:
        kept = sorted((placed(choice.dims, EFFORT) for choice in constructed[:most]), key=_rank)
    chosen = best_of(kept, ranks_per_node)
    kept = [choice for choice in kept if choice is not chosen]
    took = f"{chosen.total_s * 1e3:.3g} ms"
    if chosen.dims != simple:
        slower = next(choice for choice in (*kept, *constructed) if choice.dims == simple)
        took += f" against {slower.total_s * 1e3:.3g} for {Grid(simple)}"
    if row_nodes > 1:
        took += "; a row is an NVLink domain, or an equal part: NCCL's own all-reduce"
    return [replace(chosen, reason=f"{_reason(chosen.arrangement, cluster)}; {took}"), *kept]


def _domain_nodes(cluster: Cluster, hosts: Sequence[str], count: int) -> int:
    """The nodes of a row that lies within an NVLink domain, and is as long as all rows can be."""
    return gcd(count, *Counter(host.leaf for host in cluster.only(list(dict.fromkeys(hosts)))).values())


def _fastest(
    every: Sequence[tuple[int, ...]], layout: RegularLayout, gradient_bytes: float, sync: SyncKeys
) -> list[tuple[int, ...]]:
    return sorted(every, key=lambda dims: (cost_of(sync, layout, dims)(gradient_bytes), dims))


def _rank(choice: Choice) -> tuple[float, int, tuple[int, ...]]:
    return round(choice.total_s, 12), len(choice.dims), choice.dims


def _regular(tree: Fabric, nodes: int, ranks_per_node: int, cluster: Cluster) -> Iterator[Network]:
    """The hosts as racks of their mean size: once with the uplinks' mean bandwidth, once with the narrowest."""
    inside, latency_s = cluster.node.intra_node, cluster.node.inter_node.latency_s
    node = Level("node", ranks_per_node, inside.bandwidth_bytes_per_s, inside.latency_s)
    host_bytes_per_s = min(tree.host_bytes_per_s)
    if not tree.uplinks:
        whole = Level("cluster", nodes, host_bytes_per_s, latency_s, ranks_per_node)
        yield Network((node, whole), compute_capability=cluster.node.compute_capability)
        return
    racks = min(nodes, len(set(tree.paths)))
    rack = -(-nodes // racks)
    waits = [switch.uplink.latency_s for switch in cluster.switches if switch.uplink and switch.name in tree.uplinks]
    shares = [bandwidth / below for bandwidth, below in zip(tree.uplink_bytes_per_s, tree.below, strict=True)]
    for share in sorted({fmean(shares), min(shares)}):
        inner = Level("rack", rack, host_bytes_per_s, latency_s, ranks_per_node)
        outer = Level("cluster", racks, rack * share, latency_s + 2 * max(waits), ranks_per_node * rack)
        yield Network((node, inner, outer), nodes * ranks_per_node, cluster.node.compute_capability)


def _reason(chosen: Arrangement, cluster: Cluster) -> str:
    """The levels of the shape, and how narrow the racks' uplinks are."""
    levels = _levels(chosen.rings.dims, chosen.rings.ranks_per_node)
    return f"{levels}{_racks(fabric(cluster, cluster.only(chosen.hosts)))}"


def _levels(dims: tuple[int, ...], per_node: int) -> str:
    if len(dims) == 1:
        return "1 level: all ranks in one group"
    row = dims[0]
    if row == per_node:
        what = "a row is a node"
    elif row % per_node == 0:
        what = f"a row is {counted(row // per_node, 'node')}"
    else:
        what = f"a node has {counted(per_node // row, 'row')}"
    return f"{len(dims)} levels: {what}"


def _racks(tree: Fabric) -> str:
    """The oversubscription of the worst uplink: the bandwidth of the hosts below it over its own."""
    sent = [0.0] * len(tree.uplinks)
    for kind in tree.kinds:
        for uplink in tree.paths[kind]:
            sent[uplink] += tree.host_bytes_per_s[kind]
    ratio = max((s / b for s, b in zip(sent, tree.uplink_bytes_per_s, strict=True)), default=0.0)
    return f", racks are {ratio:.2g}:1 oversubscribed" if ratio > OVERSUBSCRIBED else ""


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
    """The orders by the network, by name, at random (the median) and by switch, and the two bounds."""
    rings = arrangement.rings

    def row(order: str, hosts: Sequence[str]) -> OrderRow:
        on_links = loads(rings.levels, cluster, hosts)
        hottest = f"{on_links.hottest.kind} {on_links.hottest.name}" if on_links.hottest else "none"
        cost = cost_of(sync, HostsLayout(cluster, hosts, rings.ranks_per_node, backend), rings.dims)
        return OrderRow(order, cost(gradient_bytes), on_links.largest_s_per_byte, on_links.hop_bytes, hottest)

    chance = random.Random(0)
    shuffled = [row("random (median)", chance.sample(arrangement.hosts, len(arrangement.hosts))) for _ in SHUFFLES]
    yield row("by the network", arrangement.hosts)
    yield row("alphabetical", sorted(arrangement.hosts))
    yield sorted(shuffled, key=lambda row: row.all_reduce_s)[len(SHUFFLES) // 2]
    yield row("by switch", by_switch(arrangement.hosts, cluster))
    grid_s, cut_s = arrangement.grid_bound_s_per_byte, arrangement.cut_bound_s_per_byte
    yield OrderRow("bound of this grid", grid_s * gradient_bytes, grid_s, None, "")
    yield OrderRow("bound of any scheme", cut_s * gradient_bytes, cut_s, None, "")


def by_switch(hosts: Sequence[str], cluster: Cluster) -> list[str]:
    """The hosts leaf by leaf, within a leaf by name: as srun numbers tasks in Slurm 26.05.

    Its plug-ins rank hosts by the number of their leaf switch or block; equal ranks keep the order of the node table,
    which is that of names (topology_p_get_rank and _task_layout_topo, 26.05.3 [verified]).
    """
    place = {name: i for i, name in enumerate(cluster.switch)}
    return [host.name for host in sorted(cluster.in_order(hosts), key=lambda host: place[host.leaf])]
