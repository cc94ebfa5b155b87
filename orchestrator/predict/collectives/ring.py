"""Ring: 2(N-1) a + 2(N-1)/N n/B.

Source: Patarasuk and Yuan, 2009 (from memory). Steps are counted for each kind of link as in NCCL 2.30, tuning.cc
(verified).
"""

from __future__ import annotations

from orchestrator.predict.collectives.links import Chain


def all_reduce_s(size_bytes: float, along: Chain) -> float:
    """Reduce-scatter, then all-gather."""
    return 2 * half_s(size_bytes, along)


def half_s(size_bytes: float, along: Chain) -> float:
    """One half of it, a reduce-scatter or an all-gather: (N-1) a + (N-1)/N n/B."""
    return along.latency_s + along.share * size_bytes / along.bandwidth_bytes_per_s


def sent_bytes(size_bytes: float, ranks: int) -> float:
    """The bytes that one rank sends: 2 n (N-1)/N."""
    return 2 * size_bytes * (ranks - 1) / ranks
