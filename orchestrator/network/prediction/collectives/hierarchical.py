"""Leaders: 2(g-1) a1 + 2 n/B1 + 2(M-1) a2 + 2(M-1)/M n/B2. Every leader sends all n bytes of its unit.

The ranks of a unit reduce to their leader, the leaders all-reduce in a ring, each leader broadcasts. Source:
ChainerMN's hierarchical communicator (verified in its code) and Tencent's (1807.11205, from its description). The cost
is derived.
"""

from __future__ import annotations

from orchestrator.network.cost import regular
from orchestrator.network.cost.links import Network


def all_reduce_s(size_bytes: float, network: Network) -> float:
    """A reduce in every innermost unit, a ring of the leaders, a broadcast."""
    inner = network.levels[0]
    members = inner.members
    ends_s = 2 * ((members - 1) * inner.latency_s + size_bytes / inner.bandwidth_bytes_per_s) if members > 1 else 0.0
    if network.ranks <= members:
        return ends_s
    leaders = Network(network.levels[1:], network.ranks // members)
    return ends_s + regular.ring_s(size_bytes, leaders)
