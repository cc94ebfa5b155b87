"""Partitions into buckets that frameworks use: by number and by size."""

from __future__ import annotations

from collections.abc import Sequence


def equal_buckets(sizes_bytes: Sequence[float], count: int) -> tuple[int, ...]:
    """About `count` buckets of about the same size; a gradient is in one bucket only."""
    return capped_buckets(sizes_bytes, sum(sizes_bytes) / count)


def capped_buckets(sizes_bytes: Sequence[float], cap_bytes: float) -> tuple[int, ...]:
    """A bucket is full as soon as it holds `cap_bytes` (as in DDP's reducer, verified)."""
    buckets, held, count = [], 0.0, 0
    for size in sizes_bytes:
        held, count = held + size, count + 1
        if held >= cap_bytes:
            buckets.append(count)
            held, count = 0.0, 0
    return tuple(buckets + [count] if count else buckets)
