"""Double binary tree, pipelined: 2[(g-1) a1 + ceil(log2 M) a2] + 2 n/(0.92 B).

Source: NCCL 2.30, src/graph/tuning.cc (verified): a chain within a node, two trees over the nodes, 0.92 of the
bandwidth. Unlike a ring's 2(N-1)/N, the factor 2 is the same for every N.
"""

from __future__ import annotations

from math import ceil, log2

from orchestrator.predict.collectives.links import Chain, chain
from orchestrator.predict.network import Network

EFFICIENCY = 0.92


def all_reduce_s(size_bytes: float, network: Network) -> float:
    """All ranks of the network: chains in the innermost units, trees over the units."""
    inner = chain(network, network.levels[0].members)
    units = network.ranks // network.levels[0].members
    if units == 1:
        return along_s(size_bytes, inner)
    outer = chain(network, units, network.levels[0].members)
    narrow = min(chain(network, network.ranks).bandwidth_bytes_per_s, inner.bandwidth_bytes_per_s)
    latency = 2 * (inner.latency_s + ceil(log2(units)) * outer.widest_hop_s)
    return latency + 2 * size_bytes / (EFFICIENCY * narrow)


def along_s(size_bytes: float, along: Chain) -> float:
    """The ranks of one chain, each in another unit, such as the column of a torus. Derived.

    Two ranks exchange halves, which takes the time of a ring.
    """
    if along.count == 1:
        return 0.0
    latency = 2 * ceil(log2(along.count)) * along.widest_hop_s
    factor = 2 / EFFICIENCY if along.count > 2 else 1.0
    return latency + factor * size_bytes / along.bandwidth_bytes_per_s
