"""One step of training: compute, the wait for the slowest rank and for input, and communication that does not overlap.

The wait for the slowest rank: a synchronous step ends when the slowest of its N ranks has ended its part. Source:
derived. The compute time of a rank varies from step to step, by a normal distribution whose standard deviation is sigma
times its mean. The slowest of N takes sigma x E(N) longer than the mean, where E(N) is the expected maximum of N
standard normal numbers. A compute time that was taken from a run of B ranks contains E(B) already.

The wait for input: a rank reads and decodes the next batch during the step, and waits if that takes longer.

Batch norms over several ranks exchange (training/norm.py) two float64 per channel in the forward pass and
two float32 in the backward pass, in one all-reduce for each layer. No rank computes meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate
from math import erfc, exp, log, log1p, pi, sqrt
from typing import Literal

from torusrun.orchestrator.forecast import constants, epochs
from torusrun.orchestrator.forecast.device import Device
from torusrun.orchestrator.forecast.interval import Interval
from torusrun.orchestrator.place.cost.all_reduce import Cost
from torusrun.training.models.residual import facts_resnet50
from torusrun.training.recipe.facts import DataFacts, Tensor
from torusrun.training.sync import plans

FARTHEST, SPACING = 9.0, 0.02  # standard deviations


@lru_cache
def expected_maximum(ranks: int) -> float:
    """The mean of the largest of `ranks` standard normal numbers: the integral of z N f(z) F(z)^(N-1), by trapezoids.

    The tests compare it with the known values for 2, 3, 10, 100 and 1,000.
    """
    if ranks <= 1:
        return 0.0
    points = int(2 * FARTHEST / SPACING)
    return SPACING * sum(_density(-FARTHEST + SPACING * point, ranks) for point in range(points + 1))


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
        """The wait as a share of the compute time. Below 0 it is a share of a time with the baseline's own wait."""
        known = expected_maximum(self.baseline)
        excess = expected_maximum(self.ranks) - known
        return sigma * excess / (1.0 if excess >= 0 else 1 + sigma * known)

    def wait_s(self, compute_s: float) -> float:
        """The mean wait in a step; below 0 if the baseline had more ranks."""
        return self._share(self.sigma) * compute_s

    def wait_between(self, compute_s: float) -> Interval:
        """The same with the bounds of sigma. Beyond the largest known cluster the upper bound has a longer tail.

        No spread of so many ranks is published. There the upper bound has an exponential tail, whose expected maximum
        grows as log N, in place of a normal tail (derived).
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


def stragglers(ranks: int, baseline: int, sigma: float | None = None, *, replayed: bool = False) -> Stragglers:
    """The stragglers among `ranks` with a measured sigma, or that of published runs that replay their steps or not."""
    table, published = constants.table("doubts"), "sigma_replayed" if replayed and sigma is None else "sigma"
    chosen = constants.number(table[published]) if sigma is None else sigma
    low, high = (chosen * constants.number(table[f"{published}_{end}_factor"]) for end in ("low", "high"))
    return Stragglers(chosen, Interval(low, high), ranks, baseline)


Grouping = tuple[Literal["exact"]] | tuple[Literal["count", "cap_bytes"], float] | tuple[Literal["tensors"], list[int]]
EXACT: Grouping = ("exact",)
EXACTLY = Interval(1.0, 1.0)


@dataclass(frozen=True)
class Step:
    """Seconds of a step by part. `exposed_between_s` are the bounds of `exposed_s` if the links are doubtful.

    A rank reads its next batch beside the step in `reading_s`; 0.0 if that is not known.
    """

    compute_s: float
    exposed_s: float
    norms_s: float  # exchange of the statistics of batch norms
    buckets: tuple[int, ...]  # number of gradients in each
    exposed_between_s: Interval
    stragglers: Stragglers | None = None
    reading_s: float = 0.0
    reading_between_s: Interval = Interval(0.0, 0.0)

    @property
    def stragglers_s(self) -> float:
        """The wait for the slowest rank."""
        return self.stragglers.wait_s(self.compute_s) if self.stragglers else 0.0

    @property
    def busy_s(self) -> float:
        """The step without the wait for input."""
        return self.compute_s + self.stragglers_s + self.exposed_s + self.norms_s

    @property
    def input_s(self) -> float:
        """The wait for input."""
        return max(0.0, self.reading_s - self.busy_s)

    @property
    def total_s(self) -> float:
        return self.busy_s + self.input_s


def step(
    device: Device,
    batch: float,
    cost_s: Cost,
    *,
    network: tuple[Tensor, ...] | None = None,
    bytes_per_parameter: float = 2.0,
    grouping: Grouping = EXACT,
    overlap: bool = True,
    norms_s: float = 0.0,
    stragglers: Stragglers | None = None,
    links_factor: Interval = EXACTLY,
) -> Step:
    """A step of `batch` images on `device`; each bucket of gradients is reduced in `cost_s(bytes)` seconds.

    The true times of the links may be `links_factor` times these, from its lower to its upper bound.
    """
    layers = network or resnet50()
    sizes = [layer.parameters * bytes_per_parameter for layer in layers]
    backward_s = device.backward_s(batch)
    ready = ready_s(layers, backward_s) if overlap else [0.0] * len(sizes)
    buckets = _buckets(ready, sizes, cost_s, grouping)
    once = lru_cache(None)(cost_s)  # the three plans below have the same sizes

    def exposed_s(factor: float) -> float:
        return plans.exposed_s(ready, sizes, lambda size: factor * once(size), buckets)

    between = Interval(*map(exposed_s, links_factor))
    return Step(device.step_s(batch), exposed_s(1.0), norms_s, buckets, between, stragglers)


def norms_s(channels: Sequence[int], cost_s: Cost) -> float:
    """Seconds of batch norms' exchanges in a step, for the channels of each; `cost_s(bytes)` is one all-reduce."""
    return sum(cost_s(2 * 8 * each) + cost_s(2 * 4 * each) for each in channels)


def _buckets(ready: list[float], sizes: list[float], cost_s: Cost, grouping: Grouping) -> tuple[int, ...]:
    if grouping[0] == "exact":
        return plans.best_buckets(ready, sizes, cost_s)
    if grouping[0] == "count":
        return plans.equal_buckets(sizes, int(grouping[1]))
    if grouping[0] == "cap_bytes":
        return plans.capped_buckets(sizes, grouping[1])
    return tuple(grouping[1])


@dataclass(frozen=True)
class InputTime:
    """The seconds until a rank has an image: from the cache of the system, or else from the file system."""

    cache_s: float
    file_system_s: float

    def of_batch(self, batch: float, factor: float) -> Interval:
        """The bounds of a batch: all images from the cache, or none; a repeated measurement differs by `factor`."""
        return Interval(batch * self.cache_s / factor, batch * self.file_system_s * factor)


def photographs() -> DataFacts:
    """ImageNet as in the published runs."""
    return DataFacts(epochs.images(), epochs.validation_images(), classes=1000, shape=(3, 224, 224))


@lru_cache
def resnet50() -> tuple[Tensor, ...]:
    """161 tensors with 25,557,032 parameters in backward order: the fully connected layer first, conv1 last."""
    return tuple(reversed(facts_resnet50(photographs()).tensors))


def ready_s(tensors: tuple[Tensor, ...], backward_s: float) -> list[float]:
    """Seconds from the start of backward until each gradient is ready.

    A tensor takes time in proportion to its multiplications (derived: batch norms take none here).
    """
    work = sum(tensor.work for tensor in tensors)
    return [done / work * backward_s for done in accumulate(tensor.work for tensor in tensors)]
