"""A lower bound, and the all-reduces of programs that used neither NCCL nor gloo.

Notation as in the literature: a latency per step, B bytes per second in one direction, n bytes reduced, N ranks. The
time of the additions is left out. Every formula names its source and how it was checked: verified (read in the source),
derived (by arithmetic from the source) or from memory.
"""

from __future__ import annotations

from dataclasses import replace

from torusrun.orchestrator.place.cost import regular
from torusrun.orchestrator.place.cost.links import Network


def cut_s(size_bytes: float, network: Network) -> float:
    """A lower bound for every all-reduce whose sums are computed by the ranks, not by switches.

    2(k-1)/k n/C for k equal units whose links have the bandwidth C. Derived: a unit counts as one rank, and no
    all-reduce of k ranks sends less than a ring (Patarasuk and Yuan, from memory).
    """
    bounds = [0.0]
    for index, level in enumerate(network.levels):
        units = network.ranks // network.unit_ranks(index)
        bounds.append(2 * (units - 1) / units * size_bytes / level.bandwidth_bytes_per_s)
    return max(bounds)


def halving_s(size_bytes: float, network: Network) -> float:
    """Recursive halving and doubling: 2 ceil(log2 N) a + 2(N-1)/N n/B.

    Source: Rabenseifner, 2004 (from memory). Exact for powers of two. For other numbers, the surplus ranks first send
    their data to neighbours, and get the result at the end: two more steps of n bytes (as in MPICH, from memory). If
    the partners are behind another link, all ranks of a unit send over it at the same time (derived).
    """
    ranks = network.ranks
    if ranks == 1:
        return 0.0
    core = 1 << (ranks.bit_length() - 1)
    distances = (1 << step for step in range(core.bit_length() - 1))
    total = 2 * sum(_step_s(network, distance, size_bytes / (2 * distance)) for distance in distances)
    return total + (2 * _step_s(network, 1, size_bytes) if core != ranks else 0.0)


def _step_s(network: Network, distance: int, sent_bytes: float) -> float:
    """One simultaneous exchange of every rank with the rank `distance` away."""
    outermost = max(i for i in range(len(network.levels)) if i == 0 or network.unit_ranks(i) <= distance)
    level = network.levels[outermost]
    return level.latency_s + sent_bytes / level.share_bytes_per_s(network.unit_ranks(outermost))


def leaders_s(size_bytes: float, network: Network) -> float:
    """Leaders: 2(g-1) a1 + 2 n/B1 + 2(M-1) a2 + 2(M-1)/M n/B2. Every leader sends all n bytes of its unit.

    The ranks of a unit reduce to their leader, the leaders all-reduce in a ring, each leader broadcasts. Source:
    ChainerMN's hierarchical communicator (verified in its code) and Tencent's (1807.11205, from its description). The
    cost is derived.
    """
    inner = network.levels[0]
    members = inner.members
    ends_s = 2 * ((members - 1) * inner.latency_s + size_bytes / inner.bandwidth_bytes_per_s) if members > 1 else 0.0
    if network.ranks <= members:
        return ends_s
    leaders = replace(network, levels=network.levels[1:], used=network.ranks // members)
    return ends_s + regular.ring_s(size_bytes, leaders)
