"""The time of a grid's all-reduce on given hosts, phase by phase.

The phases of the torus follow one another (`phases`). In one of them every ring passes chunks around, d - 1 hops each,
once to reduce or to gather, twice for both. What bounds it [derived]:

    its busiest link:   bytes over the link / its bandwidth
    its slowest chunk:  over the hops of its way, the latency + its bytes / its share of the narrowest link there

With gloo a phase takes the longer of the two (benchmarks/predict.py holds that against shaped links): fast
intra-node hops do not idle the links between nodes. NCCL's own model adds the latency of its
steps to the time of the busiest link (2.30, src/graph/tuning.cc, verified); where all hops are alike both say the same.
A message between hosts takes the slower of their two links and every uplink on its way; one within a node takes the
intra-node link. Additions are not charged, and phases do not overlap.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orchestrator.cluster.model import Cluster, Host
from orchestrator.placement.fabric import fabric
from orchestrator.placement.load import LinkLoad, Loads, link_loads
from orchestrator.placement.phases import Phase, phases
from orchestrator.placement.rings import Rings


@dataclass(frozen=True)
class PhaseTime:
    """What bounds one phase, in seconds and seconds per byte of gradient."""

    name: str
    link_s_per_byte: float
    steps_s: float
    chunk_s: float
    chunk_s_per_byte: float


@dataclass(frozen=True)
class Timing:
    """The phases of one all-reduce."""

    phases: tuple[PhaseTime, ...]

    def nccl_s(self, size_bytes: float) -> float:
        """Links and latencies added up."""
        return sum(phase.steps_s + phase.link_s_per_byte * size_bytes for phase in self.phases)

    def gloo_s(self, size_bytes: float) -> float:
        """The longer of what the links and what the chunks take."""
        return sum(
            max(phase.link_s_per_byte * size_bytes, phase.chunk_s + phase.chunk_s_per_byte * size_bytes)
            for phase in self.phases
        )


def timing(rings: Rings, cluster: Cluster, names: Sequence[str]) -> Timing:
    """The all-reduce with the host `names[p]` on position p. Raises SiteError for unknown hosts."""
    parts = phases(rings)
    loads = link_loads([part.flows for part in parts], cluster, names)
    hops = _Hops(rings, cluster, cluster.only(names), loads)
    return Timing(tuple(hops.time(i, part) for i, part in enumerate(parts)))


class _Hops:
    """What single messages between positions wait for."""

    def __init__(self, rings: Rings, cluster: Cluster, hosts: Sequence[Host], loads: Loads) -> None:
        self._rings, self._intra_node = rings, cluster.node.intra_node
        self._tree = fabric(cluster, hosts)
        self._links = loads.links[: len(hosts)], loads.links[len(hosts) :]
        self._orbits: dict[int, set[tuple[int, ...]]] = {}

    def time(self, index: int, part: Phase) -> PhaseTime:
        size = self._rings.dims[part.level]
        if size == 1:
            return PhaseTime(part.name, 0.0, 0.0, 0.0, 0.0)
        intra_node_s = part.intra_node / self._intra_node.bandwidth_bytes_per_s
        busiest_s = max([intra_node_s, *(load.levels[index] / load.link.bandwidth_bytes_per_s for load in self._all())])
        times, found = part.steps / (size - 1), dict[tuple[int, int], tuple[float, float]]()
        latency_s = steps_s = transfer_s = 0.0
        for ring in self._rings_of(part.level):
            hops = list(zip(ring, (*ring[1:], ring[0]), strict=True))
            for hop in hops:
                if hop not in found:
                    found[hop] = self._hop(index, *hop, intra_node_s)
            ways = [found[hop] for hop in hops]
            quickest = min(ways)
            transfer_s = max(transfer_s, sum(way[0] for way in ways) - quickest[0])
            latency_s = max(latency_s, sum(way[1] for way in ways) - quickest[1])
            steps_s = max(steps_s, sum(way[1] for way in ways) - max(way[1] for way in ways))  # as NCCL counts steps
        chunk_s_per_byte = min(transfer_s / (size - 1), busiest_s)
        return PhaseTime(part.name, busiest_s, steps_s * times, latency_s * times, chunk_s_per_byte)

    def _all(self) -> Iterator[LinkLoad]:
        for links in self._links:
            yield from links

    def _rings_of(self, level: int) -> set[tuple[int, ...]]:
        """The positions of every ring of a level, equal ones once."""
        if level not in self._orbits:
            size, stride, per_node = self._rings.dims[level], self._rings.stride(level), self._rings.ranks_per_node
            self._orbits[level] = {
                tuple(rank // per_node for rank in range(first, first + size * stride, stride))
                for first in range(self._rings.ranks)
                if first // stride % size == 0
            }
        return self._orbits[level]

    def _hop(self, index: int, a: int, b: int, intra_node_s: float) -> tuple[float, float]:
        """(seconds per byte of gradient that the narrowest link of the hop is busy in all, latency)."""
        if a == b:
            return intra_node_s, self._intra_node.latency_s
        hosts, uplinks = self._links
        crossed = [uplinks[u] for u in self._tree.crossed[self._tree.kinds[a]][self._tree.kinds[b]]]
        busy_s = max(load.levels[index] / load.link.bandwidth_bytes_per_s for load in (hosts[a], hosts[b], *crossed))
        latency_s = max(hosts[a].link.latency_s, hosts[b].link.latency_s)
        return busy_s, latency_s + sum(load.link.latency_s for load in crossed)
