"""A site's own interval around its forecasts, by the ratios of what its runs took to what was predicted.

Source: derived. If nothing distinguishes the next run from the n before it, its ratio is equally likely to have any
rank among all n + 1. So it is between the k-th smallest and the k-th largest of the n with probability
1 - 2 k / (n + 1), whatever the distribution is.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

TAIL = 20  # one run in 20 may be below the interval, and one above it: a 90 % interval
FEWEST = TAIL - 1  # runs; with fewer, even the smallest and the largest ratio enclose less than 90 %


def own_interval(ratios: Sequence[float]) -> tuple[float, float] | None:
    """The 90 % interval (low, high) of the ratio of the next run; None for fewer than FEWEST runs."""
    nth = (len(ratios) + 1) // TAIL
    if nth < 1:
        return None
    ordered = sorted(ratios)
    return ordered[nth - 1], ordered[-nth]


@dataclass(frozen=True)
class Errors:
    """The errors of `runs` forecasts as shares: the `median` with its sign, and `p95` and the `worst` without it."""

    runs: int
    median: float
    p95: float
    worst: float


def errors(ratios: Sequence[float]) -> Errors:
    """The errors of at least one ratio. p95 is the error that at least 95 % of the runs do not exceed."""
    sizes = sorted(abs(ratio - 1) for ratio in ratios)
    return Errors(len(ratios), median(ratios) - 1, sizes[math.ceil(0.95 * len(sizes)) - 1], sizes[-1])
