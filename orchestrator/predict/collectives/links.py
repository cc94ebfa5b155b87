"""The links that a group of ranks uses, seen from one of its ranks.

Derived: of u / stride hops from rank r to r + stride, one leaves a unit of u ranks, and min(stride, u) groups use that
unit's link at the same time. A hop has the latency of the outermost link that it crosses, as in NCCL's own model
(verified: NCCL 2.30, src/graph/tuning.cc: 2(N-1) - 2(M-1) steps within nodes, 2(M-1) between them).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from orchestrator.predict.network import Level, Network


@dataclass(frozen=True)
class Chain:
    """A group of `count` ranks in a line.

    `latency_s` is that of all hops together, `bandwidth_bytes_per_s` the group's share of the narrowest link,
    `widest_hop_s` the latency of the slowest hop.
    """

    count: int
    latency_s: float
    bandwidth_bytes_per_s: float
    widest_hop_s: float

    @property
    def share(self) -> float:
        """(N-1)/N: the part of its data that a rank sends in a reduce-scatter."""
        return (self.count - 1) / self.count


def chain(network: Network, count: int, stride: int = 1) -> Chain:
    """Ranks 0, stride, 2 stride, ...: a row with stride 1, a column with stride X. All such groups send at once."""
    used = [(hops, level, flows) for hops, level, flows in _crossings(network, count, stride) if hops]
    return Chain(
        count,
        sum(hops * level.latency_s for hops, level, _ in used),
        min((level.share_bytes_per_s(flows) for _, level, flows in used), default=float("inf")),
        max((level.latency_s for _, level, _ in used), default=0.0),
    )


def _crossings(network: Network, count: int, stride: int) -> Iterator[tuple[int, Level, int]]:
    """For each level: (hops whose outermost link is of this level, the level, flows on one such link)."""
    units = [network.unit_ranks(i) for i in range(len(network.levels))]
    reaching = [_leaving(network.ranks, unit, count, stride) for unit in units]
    for index, level in enumerate(network.levels):
        hops, flows = reaching[index]
        further = reaching[index + 1][0] if index + 1 < len(reaching) else 0
        yield hops - further, level, flows


def _leaving(ranks: int, unit: int, count: int, stride: int) -> tuple[int, int]:
    """(hops of a group that leave a unit, groups that leave it over the same link), for the slowest group."""
    block, hops, flows = stride * count, count - 1, min(stride, unit)
    even = unit % stride == 0 or stride % unit == 0
    if unit > 1 and unit % block == 0:
        return 0, 1
    if block == ranks or (block % unit == 0 and even):
        return min(hops, stride * hops // unit if even else -(-stride * hops // unit)), flows
    return min(hops, -(-block // unit)), min(2 * flows, unit)  # blocks end inside units: two of them share a link
