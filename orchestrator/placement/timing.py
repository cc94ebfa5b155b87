"""How long the all-reduce of a grid takes where its hosts stand: phase after phase, what the slowest ring waits for.

The phases of the torus follow one another (`phases`). For n bytes each takes [derived]

    the latency of the hops that follow one another in its slowest ring
    + n max over links (bytes of the phase over the link per byte of gradient / its bandwidth)

where one message between hosts waits for the slower of their two links and for every uplink on its way, and one within
a node for the link inside. A chunk goes around a ring of d ranks in d - 1 hops, once to reduce and once to gather.
Additions are not charged, and what overlaps between phases is not taken off.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orchestrator.cluster.model import Cluster, Host
from orchestrator.placement.fabric import Fabric, fabric
from orchestrator.placement.load import link_loads
from orchestrator.placement.phases import Phase, phases
from orchestrator.placement.rings import Rings


@dataclass(frozen=True)
class Timing:
    """Seconds of one all-reduce as a function of its bytes: a + b n."""

    latency_s: float
    s_per_byte: float

    def seconds(self, size_bytes: float) -> float:
        return self.latency_s + self.s_per_byte * size_bytes


def timing(rings: Rings, cluster: Cluster, names: Sequence[str], exchange: bool = False) -> Timing:
    """The all-reduce with the host `names[p]` on position p; `exchange` as in `phases`. Raises SiteError for unknown
    hosts.
    """
    parts = phases(rings, exchange)
    loads = link_loads([part.flows for part in parts], cluster, names)
    hops = _Hops(rings, cluster, cluster.only(names))
    inside_s = 1 / cluster.node.inside.bandwidth_bytes_per_s
    return Timing(
        sum(hops.latency_s(part) for part in parts),
        sum(max(loads.phase_s_per_byte(i), part.inside * inside_s) for i, part in enumerate(parts)),
    )


class _Hops:
    """What single messages between positions wait for."""

    def __init__(self, rings: Rings, cluster: Cluster, hosts: Sequence[Host]) -> None:
        self._rings, self._inside_s = rings, cluster.node.inside.latency_s
        self._tree: Fabric = fabric(cluster, hosts)
        uplinks = [cluster.switch[name].uplink for name in self._tree.uplinks]
        self._uplink_s = [link.latency_s if link else 0.0 for link in uplinks]
        self._host_s = [host.network.latency_s for host in hosts]
        self._rings_s: dict[int, float] = {}

    def latency_s(self, part: Phase) -> float:
        if part.exchange:
            return max((self._hop_s(*pair) for pair in part.flows), default=self._inside_s if part.steps else 0.0)
        if part.level not in self._rings_s:
            self._rings_s[part.level] = self._slowest_ring_s(part.level)
        size = self._rings.dims[part.level]
        return self._rings_s[part.level] * part.steps / (size - 1) if size > 1 else 0.0

    def _slowest_ring_s(self, level: int) -> float:
        """Once around but for one hop; NCCL leaves out one between nodes (2.30, tuning.cc, verified), so does this."""
        size, stride, per_node = self._rings.dims[level], self._rings.stride(level), self._rings.ranks_per_node
        seen, slowest_s = set[tuple[int, ...]](), 0.0
        for first in range(self._rings.ranks):
            if first // stride % size:
                continue
            ring = tuple(rank // per_node for rank in range(first, first + size * stride, stride))
            if ring not in seen:
                seen.add(ring)
                hops_s = [self._hop_s(a, b) for a, b in zip(ring, (*ring[1:], ring[0]), strict=True)]
                slowest_s = max(slowest_s, sum(hops_s) - max(hops_s))
        return slowest_s

    def _hop_s(self, a: int, b: int) -> float:
        if a == b:
            return self._inside_s
        crossed = self._tree.crossed[self._tree.kinds[a]][self._tree.kinds[b]]
        return max(self._host_s[a], self._host_s[b]) + sum(self._uplink_s[uplink] for uplink in crossed)
