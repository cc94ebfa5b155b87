"""Recursive halving and doubling: 2 ceil(log2 N) a + 2(N-1)/N n/B.

Source: Rabenseifner, 2004 (from memory). Exact for powers of two. For other numbers, the surplus ranks first send their
data to neighbours, and get the result at the end: two more steps of n bytes (as in MPICH, from memory). If the partners
are behind another link, all ranks of a unit send over it at the same time (derived).
"""

from __future__ import annotations

from orchestrator.network.cost.links import Network


def all_reduce_s(size_bytes: float, network: Network) -> float:
    """Exchange halves with ever more distant partners; a step takes the time of the outermost link on its way."""
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
