"""The wait for the slowest rank: a synchronous step ends when the slowest of its N ranks has ended its part.

Source: derived. The compute time of a rank varies from step to step, by a normal distribution whose standard deviation
is sigma times its mean. The slowest of N takes sigma x E(N) longer than the mean, where E(N) is the expected maximum of
N standard normal numbers. A compute time that was taken from a run of B ranks contains E(B) already.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from math import erfc, exp, log, log1p, pi, sqrt

from torusrun.orchestrator.predict.model import constants
from torusrun.orchestrator.predict.model.interval import Interval

FARTHEST, STEP = 9.0, 0.02  # standard deviations


@lru_cache
def expected_maximum(ranks: int) -> float:
    """The mean of the largest of `ranks` standard normal numbers: the integral of z N f(z) F(z)^(N-1), by trapezoids.

    The tests compare it with the known values for 2, 3, 10, 100 and 1,000.
    """
    if ranks <= 1:
        return 0.0
    points = int(2 * FARTHEST / STEP)
    return STEP * sum(_density(-FARTHEST + STEP * point, ranks) for point in range(points + 1))


def _density(z: float, ranks: int) -> float:
    beyond = erfc(z / sqrt(2)) / 2
    below = (ranks - 1) * log1p(-beyond) if beyond < 1 else -float("inf")
    return z * ranks * exp(below - z * z / 2) / sqrt(2 * pi)


@dataclass(frozen=True)
class Stragglers:
    """The spread of a rank's compute time (sigma, a share of it) among `ranks`, whose baseline had `baseline` ranks."""

    sigma: float
    bounds: Interval
    ranks: int
    baseline: int = 1

    def _share(self, sigma: float) -> float:
        """The wait as a share of the compute time. Below 0 it is a share of what contains the baseline's own wait."""
        known = expected_maximum(self.baseline)
        excess = expected_maximum(self.ranks) - known
        return sigma * excess / (1.0 if excess >= 0 else 1 + sigma * known)

    def wait_s(self, compute_s: float) -> float:
        """The mean wait in a step; below 0 if the baseline had more ranks."""
        return self._share(self.sigma) * compute_s

    def wait_between(self, compute_s: float) -> Interval:
        """The same with the bounds of sigma. Beyond the largest known cluster the upper one has a longer tail.

        No spread of so many ranks is published. There the upper bound has an exponential tail, whose expected maximum
        grows as log N, in place of a normal one (derived).
        """
        ends = sorted(self._share(sigma) * compute_s for sigma in self.bounds)
        tail_s = self.bounds.high * compute_s * self._tail
        return Interval(ends[0], ends[1] + tail_s)

    @property
    def _tail(self) -> float:
        known = largest_ranks()
        if self.ranks <= known:
            return 0.0
        return max(0.0, log(self.ranks / known) - expected_maximum(self.ranks) + expected_maximum(known))


def largest_ranks() -> int:
    """The most GPUs of a cluster that a published run could use."""
    return int(constants.number(constants.table("doubts")["largest_ranks"]))


def stragglers(ranks: int, baseline: int, sigma: float | None = None) -> Stragglers:
    """The stragglers among `ranks` with a measured sigma, or that of the published runs."""
    table = constants.table("doubts")
    centre = constants.number(table["sigma"])
    found = centre if sigma is None else sigma
    low, high = (found * constants.number(table[f"sigma_{end}_factor"]) for end in ("low", "high"))
    return Stragglers(found, Interval(low, high), ranks, baseline)
