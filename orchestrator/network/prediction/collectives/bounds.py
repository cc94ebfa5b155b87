"""A lower bound for every all-reduce whose sums are computed by the ranks, not by switches.

2(k-1)/k n/C for k equal units whose links have the bandwidth C. Derived: a unit counts as one rank, and no
all-reduce of k ranks sends less than a ring (Patarasuk and Yuan, from memory).
"""

from __future__ import annotations

from orchestrator.network.cost.links import Network


def cut_s(size_bytes: float, network: Network) -> float:
    """The largest bandwidth bound of all levels."""
    bounds = [0.0]
    for index, level in enumerate(network.levels):
        units = network.ranks // network.unit_ranks(index)
        bounds.append(2 * (units - 1) / units * size_bytes / level.bandwidth_bytes_per_s)
    return max(bounds)
