"""Which gradients are reduced together while backward runs: plans by number, by size, and the plan that ends first.

A plan gives the number of gradients of each bucket; the gradients are in the order in which they become ready. No
torch: the prediction makes the same plans.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal


@dataclass(frozen=True)
class Layout:
    """`order` has the gradients' numbers in the model, the first to be ready first.

    `counts` has the number of gradients of each bucket. Raises ValueError unless every gradient is in one bucket.
    """

    order: tuple[int, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        whole = sorted(self.order) == list(range(len(self.order)))
        if not whole or min(self.counts) < 1 or sum(self.counts) != len(self.order):
            raise ValueError(f"{len(self.counts)} buckets do not hold each of {len(self.order)} gradients once")

    @property
    def buckets(self) -> list[tuple[int, ...]]:
        """The numbers of the gradients in each bucket."""
        ends = list(accumulate(self.counts))
        return [self.order[end - count : end] for end, count in zip(ends, self.counts, strict=True)]


def expected_order(gradients: int) -> tuple[int, ...]:
    """The expected order of gradients before any measurement: the last parameter's is first."""
    return tuple(range(gradients))[::-1]


Shape = Literal["fujitsu", "ddp", "one"]
# 3 (k+1)^3 - 3 k^3 of ResNet-50's 161 (Fujitsu's MLPerf 0.6 submission, verified in its code)
FUJITSU = (3, 21, 57, 80)
DDP_CAPS_BYTES = (2**20, 25 * 2**20)  # torch's DistributedDataParallel, verified in its reducer


def equal_buckets(sizes_bytes: Sequence[float], count: int) -> tuple[int, ...]:
    """About `count` buckets of about the same size; a gradient is in one bucket only."""
    return capped_buckets(sizes_bytes, sum(sizes_bytes) / count)


def fujitsu_buckets(sizes_bytes: Sequence[float]) -> tuple[int, ...]:
    """3, 21, 57 and 80 gradients of 161, and the same shares of another number of them."""
    cuts = [round(len(sizes_bytes) * taken / sum(FUJITSU)) for taken in accumulate(FUJITSU, initial=0)]
    return tuple(end - start for start, end in pairwise(cuts) if end > start)


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


def by_shape(name: Shape, sizes_bytes: Sequence[float]) -> tuple[int, ...]:
    """The plan with this name."""
    if name == "one":
        return (len(sizes_bytes),)
    if name == "ddp":
        return capped_buckets(sizes_bytes, *DDP_CAPS_BYTES)
    return fujitsu_buckets(sizes_bytes)


Cost = Callable[[float], float]


def best_buckets(ready_s: Sequence[float], sizes_bytes: Sequence[float], cost_s: Cost) -> tuple[int, ...]:
    """The number of gradients in each bucket. The gradients are in the order in which they become ready."""
    total = [0.0, *accumulate(sizes_bytes)]
    ends: list[tuple[float, int]] = [(0.0, 0)]  # of the first j gradients: (seconds, buckets)
    before = [0]
    costs: dict[float, float] = {}
    for j in range(1, len(total)):
        best = (float("inf"), 0)
        at = 0
        for i in range(j):
            size = total[j] - total[i]
            if size not in costs:
                costs[size] = cost_s(size)
            end = (max(ends[i][0], ready_s[j - 1]) + costs[size], ends[i][1] + 1)
            if end < best:
                best, at = end, i
        ends.append(best)
        before.append(at)
    buckets, j = list[int](), len(before) - 1
    while j:
        buckets.append(j - before[j])
        j = before[j]
    return tuple(reversed(buckets))


def end_s(ready_s: Sequence[float], sizes_bytes: Sequence[float], cost_s: Cost, buckets: Sequence[int]) -> float:
    """The time at which the last bucket is reduced; `buckets` gives the number of gradients of each."""
    clock, first = 0.0, 0
    for count in buckets:
        last = first + count
        clock = max(clock, ready_s[last - 1]) + cost_s(sum(sizes_bytes[first:last]))
        first = last
    return clock


def exposed_s(ready_s: Sequence[float], sizes_bytes: Sequence[float], cost_s: Cost, buckets: Sequence[int]) -> float:
    """The exposed time: from the last gradient to the end of the last bucket."""
    return end_s(ready_s, sizes_bytes, cost_s, buckets) - ready_s[-1]
