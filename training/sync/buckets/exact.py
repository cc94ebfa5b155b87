"""The plan that ends first: f[j] = min over i < j of max(f[i], r_j) + T(S_j - S_i).

f[j] is the time at which the first j gradients are reduced, r_j the time at which gradient j is ready, S_j the bytes of
the first j, T the time of an all-reduce. A bucket holds gradients that become ready one after the other, and buckets
are reduced one at a time. Every f[j] is minimal: at the end of a bucket, no other plan has reduced these gradients
earlier. So a step that differs from the measured ones has the most reserve. Of equal plans, the one with fewer buckets
is used. Source: derived; a property test compares it with brute force.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

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
    return _cut(before)


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


def _cut(before: Sequence[int]) -> tuple[int, ...]:
    buckets = []
    j = len(before) - 1
    while j:
        buckets.append(j - before[j])
        j = before[j]
    return tuple(reversed(buckets))
