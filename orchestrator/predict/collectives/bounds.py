"""Lower bounds for every all-reduce without in-network reduction.

Source: the cut bound 2(k-1)/k n/C over k equal units with links C (derived: the units as super-ranks of a ring, whose
bandwidth is optimal by Patarasuk and Yuan, from memory), and ceil(log2 N) a.
"""

from __future__ import annotations

from math import ceil, log2

from orchestrator.predict.network import Network


def cut_s(size_bytes: float, network: Network) -> float:
    """The largest of the cut bounds of all levels."""
    bounds = [0.0]
    for index, level in enumerate(network.levels):
        units = network.ranks // network.unit_ranks(index)
        bounds.append(2 * (units - 1) / units * size_bytes / level.bandwidth_bytes_per_s)
    return max(bounds)


def latency_s(network: Network) -> float:
    """Steps that information needs to reach everyone, at the innermost latency."""
    return ceil(log2(network.ranks)) * min(level.latency_s for level in network.levels)
