"""The all-reduce of a grid on a regular network: ranks in node order, all units of a level of one size.

Derived: of u / stride hops from rank r to r + stride, one leaves a unit of u ranks, and min(stride, u) groups use that
unit's link at the same time. A hop has the latency of the outermost link that it crosses, as in NCCL's own model
(verified: NCCL 2.30, src/graph/tuning.cc: 2(N-1) - 2(M-1) steps within nodes, 2(M-1) between them). The innermost level
is within a node.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import ceil, prod

from torusrun.orchestrator.place.cost.algorithms import TORUS, GridTime, best_of, cost_of, unchunked_s
from torusrun.orchestrator.place.cost.all_reduce import AllReduceTime, Backend
from torusrun.orchestrator.place.cost.nccl import Algorithm
from torusrun.orchestrator.place.cost.phases import PhaseLinks, TreeLinks, most_leaving
from torusrun.orchestrator.place.cost.shapes import shapes
from torusrun.training.recipe.train import SyncKeys


@dataclass(frozen=True)
class Level:
    """One kind of link: `members` units (GPUs, then nodes, then racks) meet here, each over its own link."""

    name: str
    members: int
    bandwidth_bytes_per_s: float  # of one member's link, one direction
    latency_s: float  # of one step across the link
    sharing: int = 1  # ranks behind one link that may send at the same time

    def share_bytes_per_s(self, flows: int) -> float:
        """The bandwidth that each of `flows` gets on a member's link: an equal part."""
        return self.bandwidth_bytes_per_s / max(1, min(flows, self.sharing))


@dataclass(frozen=True)
class Network:
    """Levels from the innermost to the outermost; ranks are numbered along them (node-major order)."""

    levels: tuple[Level, ...]
    used: int = 0  # ranks, if they do not fill the outermost units; 0 for all
    compute_capability: int = 80  # of the GPUs, 70 for sm_70; 80 if unknown

    @property
    def ranks(self) -> int:
        return self.used or prod(level.members for level in self.levels)

    def unit_ranks(self, index: int) -> int:
        """Ranks behind one link of level `index`."""
        return prod(level.members for level in self.levels[:index])

    def holding(self, ranks: int) -> Network:
        """The smallest part of this network with room for `ranks`; the outermost level grows as needed."""
        kept: list[Level] = []
        units = ranks
        for index, level in enumerate(self.levels):
            last = index == len(self.levels) - 1
            kept.append(replace(level, members=units if last else min(level.members, units)))
            units = ceil(units / level.members)
            if units <= 1:
                break
        return replace(self, levels=tuple(kept), used=ranks)


@dataclass(frozen=True)
class Crossing:
    """The hops of a group, from its first rank to its last, whose outermost link is on one level."""

    level: Level
    hops: int
    flows: int  # on one link of the level, including flows of hops that go further
    used: bool  # whether any hop crosses the level

    @property
    def rank_s_per_byte(self) -> float:
        """Seconds per byte of each rank that sends over one link."""
        return 1 / self.level.share_bytes_per_s(self.flows) if self.used else 0.0


def all_reduce(
    network: Network, dims: Sequence[int], backend: Backend, algorithms: tuple[Algorithm, ...] = ("ring", "tree")
) -> AllReduceTime:
    """The all-reduce over a grid of `dims`; the first varies fastest."""
    down, up, total = list[PhaseLinks](), list[PhaseLinks](), [0.0] * len(network.levels)
    for index, ranks in enumerate(dims):
        stride = prod(dims[:index])
        crossings = list(_crossings(network, ranks, stride))
        if index < len(dims) - 1:
            down.append(_phase(crossings, ranks, stride, 1))
            up.insert(0, down[-1])
        else:
            phase = _phase(crossings, ranks, stride, 2)
            down.append(phase if ranks == 1 else _with_tree(phase, network, crossings, stride))
        for level, crossing in enumerate(crossings):
            total[level] += 2 * (ranks - 1) / ranks / stride * crossing.rank_s_per_byte
    return AllReduceTime((*down, *up), max(total), backend, algorithms, network.compute_capability)


@dataclass(frozen=True)
class RegularLayout:
    """All ranks of a regular network, or every n-th."""

    network: Network
    backend: Backend

    @property
    def ranks(self) -> int:
        return self.network.ranks

    def torus(self, dims: Sequence[int]) -> AllReduceTime:
        return all_reduce(self.network, dims, self.backend)

    def first(self, ranks: int) -> RegularLayout:
        return replace(self, network=self.network.holding(ranks))

    def leaders(self, group: int) -> RegularLayout:
        """Units are rounded up if groups end inside them."""
        levels, apart = list[Level](), group
        for level in self.network.levels:
            members, sharing = -(-level.members // apart), max(1, level.sharing // group)
            levels.append(replace(level, members=members, sharing=sharing))
            apart = -(-apart // level.members)
        return replace(self, network=replace(self.network, levels=tuple(levels), used=self.ranks // group))


def _phase(crossings: Sequence[Crossing], ranks: int, stride: int, times: int) -> PhaseLinks:
    share = 1 / stride
    if ranks == 1:
        return PhaseLinks(1, share, times)
    sent = times * (ranks - 1) / ranks * share
    link_s = sent * max(crossing.rank_s_per_byte for crossing in crossings)
    slowest = list(_slowest_way(crossings))
    transfers_s = sum(hops * sent * crossing.rank_s_per_byte for hops, crossing in slowest)
    return PhaseLinks(
        ranks,
        share,
        times,
        near_hops=crossings[0].hops,
        far_hops=sum(crossing.hops for crossing in crossings[1:]),
        near_s=crossings[0].level.latency_s,
        far_s=sum(crossing.hops * crossing.level.latency_s for crossing in crossings[1:]),
        link_s_per_byte=link_s,
        chunk_s=times * sum(hops * crossing.level.latency_s for hops, crossing in slowest),
        chunk_s_per_byte=min(transfers_s / (ranks - 1), link_s),
    )


def _slowest_way(crossings: Sequence[Crossing]) -> Iterator[tuple[int, Crossing]]:
    """The hops of the slowest chunk: it skips the quickest hop of the ring, which closes over the outermost level."""
    taken = [crossing for crossing in crossings if crossing.hops]
    quickest = min(taken, key=lambda crossing: (crossing.rank_s_per_byte, crossing.level.latency_s))
    for crossing in taken:
        yield crossing.hops + (crossing is taken[-1]) - (crossing is quickest), crossing


def _with_tree(phase: PhaseLinks, network: Network, crossings: Sequence[Crossing], stride: int) -> PhaseLinks:
    """The phase with the links of a tree: each carries twice a rank's vector, or the load of the trees' edges."""
    in_node = max(1, network.unit_ranks(1) // stride) if len(network.levels) > 1 else phase.ranks
    chain = min(phase.ranks, in_node)
    nodes = -(-phase.ranks // chain)
    loads = [2.0 if crossing.used else 0.0 for crossing in crossings]
    for index in range(2, len(crossings)):
        block = max(1, network.unit_ranks(index) // stride // chain)
        loads[index] = most_leaving(nodes, block) / 2 if crossings[index].used else 0.0
    links_s = [load * phase.share * crossing.rank_s_per_byte for load, crossing in zip(loads, crossings, strict=True)]
    near_s, far_s = crossings[0].level.latency_s, max((c.level.latency_s for c in crossings[1:] if c.used), default=0.0)
    return replace(phase, tree=TreeLinks(chain, nodes, near_s, far_s, max(links_s)))


def _crossings(network: Network, count: int, stride: int) -> Iterator[Crossing]:
    """For each level, the crossings of a group of `count` ranks with `stride` between them."""
    units = [network.unit_ranks(i) for i in range(len(network.levels))]
    reaching = [_leaving(network.ranks, unit, count, stride) for unit in units]
    for index, level in enumerate(network.levels):
        hops, flows = reaching[index]
        further = reaching[index + 1][0] if index + 1 < len(reaching) else 0
        yield Crossing(level, hops - further, flows, bool(hops if index else hops - further))


def _leaving(ranks: int, unit: int, count: int, stride: int) -> tuple[int, int]:
    """(Hops of a group that leave a unit, groups that leave it over the same link), for the slowest group."""
    block, hops, flows = stride * count, count - 1, min(stride, unit)
    even = unit % stride == 0 or stride % unit == 0
    if unit > 1 and unit % block == 0:
        return 0, 1
    if block == ranks or (block % unit == 0 and even):
        return min(hops, stride * hops // unit if even else -(-stride * hops // unit)), flows
    return min(hops, -(-block // unit)), min(2 * flows, unit)  # blocks end inside units: two of them share a link


def ring_s(size_bytes: float, network: Network) -> float:
    """Seconds of a ring without protocols, 2(N-1) a + 2(N-1)/N n/B (Patarasuk and Yuan 2009, from memory)."""
    (phase,) = all_reduce(network, (network.ranks,), "gloo").phases
    return phase.times * phase.hops_s + phase.link_s_per_byte * size_bytes


def best(network: Network, size_bytes: float, backend: Backend, sync: SyncKeys = TORUS) -> GridTime:
    """The best grid of all ranks of a network, with its time."""
    layout, timed = RegularLayout(network, backend), []
    for dims in shapes(network.ranks):
        cost_s = cost_of(sync, layout, dims)
        timed.append(GridTime(dims, cost_s(size_bytes), unchunked_s(cost_s, size_bytes)))
    return best_of(timed, network.levels[0].members)
