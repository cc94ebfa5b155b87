"""Leaders: 2(g-1) a1 + 2 n/B1 + 2(M-1) a2 + 2(M-1)/M n/B2, the column step carrying all n through one rank.

Source: ChainerMN's hierarchical communicator and Tencent's (1807.11205) by description (verified for ChainerMN's
code: reduce to the leader, all-reduce among leaders, broadcast); the cost is derived.
"""

from __future__ import annotations

from orchestrator.predict.collectives import ring
from orchestrator.predict.collectives.links import chain
from orchestrator.predict.network import Network


def all_reduce_s(size_bytes: float, network: Network) -> float:
    """Reduce in every innermost unit, a ring over their leaders, broadcast."""
    members = network.levels[0].members
    inside = chain(network, members)
    ends = 2 * (inside.latency_s + size_bytes / inside.bandwidth_bytes_per_s) if members > 1 else 0.0
    return ends + ring.all_reduce_s(size_bytes, chain(leaders(network), network.ranks // members))


def leaders(network: Network) -> Network:
    """The network with one rank in each innermost unit: what the leaders see of it."""
    outer = network.levels[1:]
    return Network(outer, network.ranks // network.levels[0].members) if outer else network
