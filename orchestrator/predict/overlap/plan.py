"""The exact plan of buckets (groups): f[j] = min over i < j of max(f[i], r_j) + T(S_j - S_i).

Source: derived, equal to brute force in a property test. Gradients become ready in order, buckets are contiguous, and
one channel sends them one after the other; a group that ends sooner never hurts the next. Ties go to fewer groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate

Cost = Callable[[float], float]


def best_groups(ready_s: Sequence[float], sizes_bytes: Sequence[float], cost_s: Cost) -> tuple[int, ...]:
    """How many tensors each group takes, in the order in which they become ready."""
    total = [0.0, *accumulate(sizes_bytes)]
    ends: list[tuple[float, int]] = [(0.0, 0)]  # of the first j tensors: (seconds, groups)
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


def end_s(ready_s: Sequence[float], sizes_bytes: Sequence[float], cost_s: Cost, groups: Sequence[int]) -> float:
    """When the last of `groups` has been reduced."""
    clock, first = 0.0, 0
    for count in groups:
        last = first + count
        clock = max(clock, ready_s[last - 1]) + cost_s(sum(sizes_bytes[first:last]))
        first = last
    return clock


def exposed_s(ready_s: Sequence[float], sizes_bytes: Sequence[float], cost_s: Cost, groups: Sequence[int]) -> float:
    """What remains after the last gradient is there."""
    return end_s(ready_s, sizes_bytes, cost_s, groups) - ready_s[-1]


def _cut(before: Sequence[int]) -> tuple[int, ...]:
    groups = []
    j = len(before) - 1
    while j:
        groups.append(j - before[j])
        j = before[j]
    return tuple(reversed(groups))
