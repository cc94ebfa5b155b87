"""Leaders: 2(g-1) a1 + 2 n/B1 + 2(M-1) a2 + 2(M-1)/M n/B2. Every leader sends all n bytes of its unit.

The ranks of a unit reduce to their leader, the leaders all-reduce, each leader broadcasts. Source: ChainerMN's
hierarchical communicator (verified in its code) and Tencent's (1807.11205, from its description). The cost is derived.
"""

from __future__ import annotations

from orchestrator.predict.collectives import ring
from orchestrator.predict.collectives.links import chain
from orchestrator.predict.network import Network


def all_reduce_s(size_bytes: float, network: Network) -> float:
    """A reduce in every innermost unit, a ring of their leaders, a broadcast."""
    members = network.levels[0].members
    inside = chain(network, members)
    ends = 2 * (inside.latency_s + size_bytes / inside.bandwidth_bytes_per_s) if members > 1 else 0.0
    return ends + ring.all_reduce_s(size_bytes, chain(leaders(network), network.ranks // members))


def leaders(network: Network) -> Network:
    """The network of the leaders: one rank in each innermost unit."""
    outer = network.levels[1:]
    return Network(outer, network.ranks // network.levels[0].members) if outer else network
