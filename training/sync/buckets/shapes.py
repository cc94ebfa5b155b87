"""Plans by number and by size, as in frameworks and papers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

Shape = Literal["fujitsu", "equal", "ddp", "one"]
# 3 (k+1)^3 - 3 k^3 of ResNet-50's 161 (Fujitsu's MLPerf 0.6 submission, verified in its code)
FUJITSU = (3, 21, 57, 80)
DDP_CAPS_BYTES = (2**20, 25 * 2**20)  # torch's DistributedDataParallel, verified in its reducer


def equal_buckets(sizes_bytes: Sequence[float], count: int) -> tuple[int, ...]:
    """About `count` buckets of about the same size; a gradient is in one bucket only."""
    return capped_buckets(sizes_bytes, sum(sizes_bytes) / count)


def fujitsu_buckets(sizes_bytes: Sequence[float]) -> tuple[int, ...]:
    """3, 21, 57 and 80 gradients of 161, and the same shares of another number of them."""
    count, total, taken = len(sizes_bytes), sum(FUJITSU), 0
    cuts = [0]
    for tensors in FUJITSU:
        taken += tensors
        cuts.append(round(count * taken / total))
    return tuple(end - start for start, end in zip(cuts, cuts[1:], strict=False) if end > start)


def capped_buckets(sizes_bytes: Sequence[float], *caps_bytes: float) -> tuple[int, ...]:
    """Buckets that are full as soon as they hold their cap (as in DDP's reducer, verified); the last cap repeats."""
    buckets: list[int] = []
    held, count = 0.0, 0
    for size in sizes_bytes:
        held, count = held + size, count + 1
        if held >= caps_bytes[min(len(buckets), len(caps_bytes) - 1)]:
            buckets.append(count)
            held, count = 0.0, 0
    return tuple(buckets + [count] if count else buckets)


def by_shape(name: Shape, sizes_bytes: Sequence[float], count: int) -> tuple[int, ...]:
    """The plan with this name; `count` is the number of buckets of `equal`."""
    if name == "one":
        return (len(sizes_bytes),)
    if name == "ddp":
        return capped_buckets(sizes_bytes, *DDP_CAPS_BYTES)
    return equal_buckets(sizes_bytes, count) if name == "equal" else fujitsu_buckets(sizes_bytes)
