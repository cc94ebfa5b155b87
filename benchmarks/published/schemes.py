"""The all-reduces of the published programs by name, as functions of bytes.

Notation as in the literature: a latency per step, B bytes per second in one direction, n bytes reduced, N ranks. The
time of the additions is left out. Every formula names its source and how it was checked: verified (read in the source),
derived (by arithmetic from the source) or from memory.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from torusrun.orchestrator.place.cost import regular
from torusrun.orchestrator.place.cost.all_reduce import Cost
from torusrun.orchestrator.place.cost.nccl import Algorithm
from torusrun.orchestrator.place.cost.regular import Network

FAR_BYTES = 1e9
BOTH: tuple[Algorithm, ...] = ("ring", "tree")


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


def affine(cost_s: Cost) -> Cost:
    """The same cost, as a + b n, so that the network is not walked again for every n."""
    start_s = cost_s(0.0)
    byte_s = (cost_s(FAR_BYTES) - start_s) / FAR_BYTES
    return lambda size_bytes: start_s + byte_s * size_bytes


def torus(network: Network, dims: tuple[int, ...], algorithms: tuple[Algorithm, ...] = BOTH) -> Cost:
    """The torus of one to three levels."""
    return regular.all_reduce(network, dims, "nccl", algorithms).unchunked_s


# The schemes without a shape.
FLAT: dict[str, Callable[[Network], Cost]] = {
    "ring": lambda network: torus(network, (network.ranks,), ("ring",)),  # NCCL's
    "tree": lambda network: torus(network, (network.ranks,), ("tree",)),  # NCCL's
    "nccl": lambda network: torus(network, (network.ranks,)),  # its choice from 2.4 on, by size
    # A ring without NCCL's protocols: 2(N-1) a + 2(N-1)/N n/B (Patarasuk and Yuan, 2009, from memory).
    "plain": lambda network: affine(lambda size: regular.ring_s(size, network)),
    "halving": lambda network: affine(lambda size: halving_s(size, network)),
    "leaders": lambda network: affine(lambda size: leaders_s(size, network)),
}
