"""One step of training: compute, the wait for the slowest rank, and the communication that does not overlap.

Batch norms over several ranks exchange (training/norm/over_ranks.py) two float64 per channel in the forward pass and
two float32 in the backward pass, in one all-reduce for each layer. No rank computes meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

from torusrun.orchestrator.place.cost.all_reduce import Cost
from torusrun.orchestrator.predict.model import tensors
from torusrun.orchestrator.predict.model.compute import Device
from torusrun.orchestrator.predict.model.interval import Interval
from torusrun.orchestrator.predict.model.stragglers import Stragglers
from torusrun.training.recipe.facts import Tensor
from torusrun.training.sync.buckets import exact, shapes

Grouping = tuple[Literal["exact"]] | tuple[Literal["count", "cap_bytes"], float] | tuple[Literal["tensors"], list[int]]
EXACT: Grouping = ("exact",)
EXACTLY = Interval(1.0, 1.0)


@dataclass(frozen=True)
class Step:
    """Seconds of one step by part. `exposed_between_s` are the bounds of `exposed_s` if the links are doubtful.

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
    layers = network or tensors.resnet50()
    sizes = [layer.parameters * bytes_per_parameter for layer in layers]
    backward_s = device.backward_s(batch)
    ready = tensors.ready_s(layers, backward_s) if overlap else [0.0] * len(sizes)
    buckets = _buckets(ready, sizes, cost_s, grouping)
    once = lru_cache(None)(cost_s)  # the three plans below have the same sizes

    def exposed_s(factor: float) -> float:
        return exact.exposed_s(ready, sizes, lambda size: factor * once(size), buckets)

    between = Interval(*map(exposed_s, links_factor))
    return Step(device.step_s(batch), exposed_s(1.0), norms_s, buckets, between, stragglers)


def norms_s(channels: Sequence[int], cost_s: Cost) -> float:
    """Seconds of batch norms' exchanges in a step, for the channels of each; `cost_s(bytes)` is one all-reduce."""
    return sum(cost_s(2 * 8 * each) + cost_s(2 * 4 * each) for each in channels)


def _buckets(ready: list[float], sizes: list[float], cost_s: Cost, grouping: Grouping) -> tuple[int, ...]:
    if grouping[0] == "exact":
        return exact.best_buckets(ready, sizes, cost_s)
    if grouping[0] == "count":
        return shapes.equal_buckets(sizes, int(grouping[1]))
    if grouping[0] == "cap_bytes":
        return shapes.capped_buckets(sizes, grouping[1])
    return tuple(grouping[1])
