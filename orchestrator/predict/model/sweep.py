"""All schemes over a range of sizes: where each becomes too slow, and which shape is best."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil

from torusrun.orchestrator.place.cost import regular
from torusrun.orchestrator.place.cost.links import Network
from torusrun.orchestrator.predict.model import doubts, schemes
from torusrun.orchestrator.predict.model.collectives import cut_s
from torusrun.orchestrator.predict.model.compute import Device
from torusrun.orchestrator.predict.model.interval import Doubt, Interval, around
from torusrun.orchestrator.predict.model.schemes import Scheme
from torusrun.orchestrator.predict.model.step import step
from torusrun.orchestrator.predict.model.stragglers import stragglers
from torusrun.orchestrator.predict.model.tensors import resnet50

BYTES = sum(tensor.parameters for tensor in resnet50()) * 2.0  # ResNet-50 in half precision
BROKEN = 2.0


@dataclass(frozen=True)
class Size:
    """One number of GPUs: the all-reduce of all gradients by every scheme, and a step with the best.

    `images_per_s_between` contains the doubt of the device's rate, which the bounds of the efficiency do not.
    """

    gpus: int
    schemes: Mapping[str, Scheme]
    best_grid: tuple[int, ...]  # that `grid: auto` takes, whose phases overlap
    bound_s: float
    images_per_s: float
    images_per_s_between: Interval
    efficiency: float
    efficiency_between: Interval
    doubts: tuple[Doubt, ...]

    def cost_s(self, name: str) -> float:
        return self.schemes[name].cost_s(BYTES)

    @property
    def best(self) -> Scheme:
        return min(self.schemes.values(), key=lambda scheme: scheme.cost_s(BYTES))


def sizes(first: int, last: int, unit: int) -> list[int]:
    """`first`, doubled up to `last`, which is always included; in whole units of a node."""
    found, at = [], first
    while at < last:
        found.append(at)
        at *= 2
    return sorted({size if size <= unit else ceil(size / unit) * unit for size in [*found, last]})


def sweep(network: Network, device: Device, batch: int, gpus: list[int]) -> list[Size]:
    """One Size for each of `gpus`, at `batch` images per GPU."""
    return [_size(network.holding(count), device, batch) for count in gpus]


def breaks(found: list[Size]) -> dict[str, int | None]:
    """The first size at which a scheme takes twice as long as the best, or None."""
    return {
        name: next((size.gpus for size in found if size.cost_s(name) > BROKEN * size.best.cost_s(BYTES)), None)
        for name in found[0].schemes
    }


def _size(network: Network, device: Device, batch: int) -> Size:
    flat = [Scheme(name, (), schemes.FLAT[name](network)) for name in ("ring", "tree", "halving", "leaders")]
    every = [*flat, schemes.best_grid(network, BYTES), schemes.best_levels(network, BYTES)]
    best = min(every, key=lambda scheme: scheme.cost_s(BYTES))
    factor, waits = doubts.links_factor(), stragglers(network.ranks, device.ranks, device.spread)
    one = step(device, batch, best.cost_s, stragglers=waits, links_factor=factor)
    compute, *others = doubts.of_step(device, batch, one, doubts.other_program(), factor)
    images = network.ranks * batch
    return Size(
        gpus=network.ranks,
        schemes={scheme.name: scheme for scheme in every},
        best_grid=regular.best(network, BYTES, "nccl").dims,
        bound_s=cut_s(BYTES, network),
        images_per_s=images / one.total_s,
        images_per_s_between=around(one.total_s, [compute, *others]).rate_of(images),
        efficiency=device.step_s(batch) / one.total_s,
        efficiency_between=around(one.total_s, others).rate_of(device.step_s(batch)),
        doubts=tuple(others),
    )
