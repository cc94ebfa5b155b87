"""One step of training: compute, and the communication that does not overlap with it.

Batch norms over several ranks exchange (training/norm/over_ranks.py) two float64 per channel in the forward pass and
two float32 in the backward pass, in one all-reduce for each layer. No rank computes meanwhile.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from orchestrator.network.cost.all_reduce import Cost
from orchestrator.network.prediction import tensors
from orchestrator.network.prediction.compute import Device
from training.recipe.facts import Tensor
from training.sync.buckets import exact, shapes

Grouping = tuple[Literal["exact"]] | tuple[Literal["count", "cap_bytes"], float] | tuple[Literal["tensors"], list[int]]
EXACT: Grouping = ("exact",)


@dataclass(frozen=True)
class Step:
    """Seconds of one step by part."""

    compute_s: float
    exposed_s: float
    norms_s: float  # exchange of the statistics of batch norms
    buckets: tuple[int, ...]  # number of gradients in each

    @property
    def total_s(self) -> float:
        return self.compute_s + self.exposed_s + self.norms_s


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
) -> Step:
    """A step of `batch` images on `device`; each bucket of gradients is reduced in `cost_s(bytes)` seconds."""
    layers = network or tensors.resnet50()
    sizes = [layer.parameters * bytes_per_parameter for layer in layers]
    backward_s = device.backward_s(batch)
    ready = tensors.ready_s(layers, backward_s) if overlap else [0.0] * len(sizes)
    buckets = _buckets(ready, sizes, cost_s, grouping)
    return Step(device.step_s(batch), exact.exposed_s(ready, sizes, cost_s, buckets), norms_s, buckets)


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
