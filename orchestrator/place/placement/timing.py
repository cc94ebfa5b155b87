"""The time of a grid's all-reduce on given hosts: the load of each phase on the links between them.

Down the levels every ring reduce-scatters, the last level all-reduces, and back up every ring all-gathers. In a phase
every ring passes chunks around, d - 1 hops each, once to reduce or to gather, twice for both. Its bounds [derived]:

    its busiest link:   bytes over the link / its bandwidth
    its slowest chunk:  over the hops of its way, the latency + its bytes / its share of the narrowest link

A message between hosts uses the slower of their two links and every uplink on its way; a message within a node uses the
intra-node link. NCCL's trees load uplinks by their edges (phases.edges), and a host's link with twice the bytes.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby

from torusrun.orchestrator.place.cost.all_reduce import AllReduceTime, Backend
from torusrun.orchestrator.place.cost.phases import PhaseLinks, TreeLinks, edges
from torusrun.orchestrator.place.cost.shapes import divisors
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement.fabric import fabric, loads_on
from torusrun.orchestrator.place.placement.rings import Flows, Rings


def timing(rings: Rings, cluster: Cluster, names: Sequence[str], backend: Backend) -> AllReduceTime:
    """The all-reduce with the host `names[p]` on position p. Raises SiteError for unknown hosts."""
    hops = _Hops(rings, cluster, names)
    *down, last = [hops.phase(level) for level in range(len(rings.dims))]
    if backend == "nccl" and last.ranks > 1:
        last = replace(last, tree=hops.tree())
    phases, capability = (*down, last, *reversed(down)), cluster.node.compute_capability
    return AllReduceTime(phases, hops.busiest_s_per_byte(), backend, compute_capability=capability)


@dataclass(frozen=True)
class HostsLayout:
    """Ranks on given hosts, in order: `ranks_per_node` on each."""

    cluster: Cluster
    names: Sequence[str]
    ranks_per_node: int
    backend: Backend

    @property
    def ranks(self) -> int:
        return len(self.names) * self.ranks_per_node

    def torus(self, dims: Sequence[int]) -> AllReduceTime:
        """Raises SiteError for unknown hosts."""
        return timing(Rings(tuple(dims), self.ranks_per_node), self.cluster, self.names, self.backend)

    def first(self, ranks: int) -> HostsLayout:
        each = min(ranks, self.ranks_per_node)
        return replace(self, names=self.names[: -(-ranks // each)], ranks_per_node=each)

    def leaders(self, group: int) -> HostsLayout:
        """If groups end inside hosts, as if leaders filled the first hosts."""
        left = self.ranks // group
        if group % self.ranks_per_node == 0:
            return replace(self, names=self.names[:: group // self.ranks_per_node], ranks_per_node=1)
        each = next(count for count in divisors(left) if count * len(self.names) >= left)
        return replace(self, names=self.names[: left // each], ranks_per_node=each)


class _Hops:
    """Latency and transfer time of single messages between positions."""

    def __init__(self, rings: Rings, cluster: Cluster, names: Sequence[str]) -> None:
        self.rings, self.cluster, self.names, self.intra_node = rings, cluster, names, cluster.node.intra_node
        self.fabric = fabric(cluster, cluster.only(names))
        self.links = loads_on(rings.levels, cluster, self.fabric).links
        self._ways = dict[tuple[int, int], tuple[list[int], float]]()  # between kinds of hosts
        self.groups = [self._groups(level) for level in range(len(rings.dims))]

    def phase(self, level: int) -> PhaseLinks:
        """A level's reduce-scatter or all-gather, or the last level's all-reduce, for the slowest of its groups."""
        size, share = self.rings.dims[level], 1 / self.rings.stride(level)
        times = 2 if level == len(self.rings.dims) - 1 else 1
        if size == 1:
            return PhaseLinks(1, share, times)
        part = times / 2  # of all bytes of the level
        intra_node_s = part * self._intra_node_s(level)
        busy_s = [load.levels[level] / load.link.bandwidth_bytes_per_s for load in self.links]
        busiest_s = max(intra_node_s, part * max(busy_s, default=0.0))
        known = dict[tuple[int, int], tuple[float, float]]()
        latency_s = transfer_s = 0.0
        slowest = (0.0, 0)
        for ring in self.groups[level]:
            hops = list(zip(ring, (*ring[1:], ring[0]), strict=True))
            for hop in hops:
                if hop not in known:
                    known[hop] = self._hop(level, *hop, part, busy_s)
            ways = [known[hop] for hop in hops]
            quickest = min(ways)
            transfer_s = max(transfer_s, sum(way[0] for way in ways) - quickest[0])
            latency_s = max(latency_s, sum(way[1] for way in ways) - quickest[1])
            far_s = [known[a, b][1] for a, b in hops if a != b]
            # NCCL counts steps in this way: one hop between nodes less, or one of a ring within a node.
            steps_s = sum(way[1] for way in ways) - max(far_s or [way[1] for way in ways])
            slowest = max(slowest, (steps_s, len(far_s) - 1 if far_s else 0))
        near_hops, near_s = size - 1 - slowest[1], self.intra_node.latency_s
        return PhaseLinks(
            size,
            share,
            times,
            near_hops=near_hops,
            far_hops=slowest[1],
            near_s=near_s,
            far_s=slowest[0] - near_hops * near_s if slowest[1] else 0.0,
            link_s_per_byte=busiest_s,
            chunk_s=latency_s * times,
            chunk_s_per_byte=min(transfer_s / (size - 1), busiest_s),
        )

    def busiest_s_per_byte(self) -> float:
        """The time per byte of the link with the largest load over all phases."""
        intra_node_s = sum(self._intra_node_s(level) for level in range(len(self.rings.dims)))
        return max([intra_node_s, *(load.s_per_byte for load in self.links)])

    def _intra_node_s(self, level: int) -> float:
        """Seconds per byte of gradient that a rank needs to send to a neighbour in its node."""
        near = self.rings.stride(level) < self.rings.ranks_per_node
        return self.rings.hop(level) / self.intra_node.bandwidth_bytes_per_s if near else 0.0

    def _groups(self, level: int) -> Counter[tuple[int, ...]]:
        """The positions of every group of a level, with the number of groups on the same positions."""
        size, stride, per_node = self.rings.dims[level], self.rings.stride(level), self.rings.ranks_per_node
        return Counter(
            tuple(rank // per_node for rank in range(first, first + size * stride, stride))
            for first in range(self.rings.ranks)
            if first // stride % size == 0
        )

    def latency_s(self, a: int, b: int) -> float:
        """The latency of a hop between two positions."""
        if a == b:
            return self.intra_node.latency_s
        _, uplinks_s = self._way(a, b)
        return max(self.links[a].link.latency_s, self.links[b].link.latency_s) + uplinks_s

    def _way(self, a: int, b: int) -> tuple[list[int], float]:
        """(The uplinks between two positions, by their place in `links` after the hosts, their total latency)."""
        pair = self.fabric.kinds[a], self.fabric.kinds[b]
        if pair not in self._ways:
            places = [len(self.names) + uplink for uplink in self.fabric.crossed[pair[0]][pair[1]]]
            self._ways[pair] = places, sum(self.links[place].link.latency_s for place in places)
        return self._ways[pair]

    def _hop(self, level: int, a: int, b: int, part: float, busy_s: Sequence[float]) -> tuple[float, float]:
        """(Seconds per byte of gradient that the hop's narrowest link is busy in total, latency)."""
        if a == b:
            return part * self._intra_node_s(level), self.intra_node.latency_s
        uplinks, _ = self._way(a, b)
        longest_s = max(busy_s[a], busy_s[b], *(busy_s[uplink] for uplink in uplinks))
        return part * longest_s, self.latency_s(a, b)

    def tree(self) -> TreeLinks:
        """The last level's groups as double trees, with the values of the slowest."""
        share = 1 / self.rings.stride(len(self.rings.dims) - 1)
        flows: Flows = defaultdict(float)
        groups_on = Counter[int]()
        chain = most = 0
        far_s = near_s = 0.0
        for ring, count in self.groups[-1].items():
            runs = [(position, len(list(run))) for position, run in groupby(ring)]
            nodes = [position for position, _ in runs]
            chain, most = max(chain, *(length for _, length in runs)), max(most, len(nodes))
            for child, parent in edges(len(nodes)):
                a, b = nodes[child], nodes[parent]
                flows[a, b] += count * share / 2
                flows[b, a] += count * share / 2
                far_s = max(far_s, self.latency_s(a, b))
            if len(nodes) > 1:
                groups_on.update(dict.fromkeys(nodes, count))
        if chain > 1:
            near_s = 2 * share / self.intra_node.bandwidth_bytes_per_s
        of_trees = loads_on([flows], self.cluster, self.fabric).links
        hosts, uplinks = of_trees[: len(self.names)], of_trees[len(self.names) :]
        own_s = [2 * share * groups_on[p] / host.link.bandwidth_bytes_per_s for p, host in enumerate(hosts)]
        link_s = max([near_s, *own_s, *(load.s_per_byte for load in uplinks)])
        return TreeLinks(chain, most, self.intra_node.latency_s, far_s, link_s)
