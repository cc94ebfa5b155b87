"""Forward, backward and update of one device: t(b) = fixed + b / rate.

Source: derived. Two numbers describe a device: its published rate at a large batch, and a fixed time per step for every
batch (launches, the optimizer). Backward takes two thirds of a step, by multiplications.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from torusrun.orchestrator.predict.model import constants
from torusrun.orchestrator.predict.model.interval import Factor
from torusrun.orchestrator.predict.model.speed import factors, images_per_s
from torusrun.training.recipe.variant import Variant

BACKWARD_SHARE = 2 / 3
MIG = re.compile(r"(^|[._-])\d+g\.\d+gb")


@dataclass(frozen=True)
class Device:
    """A GPU with its software.

    Its steps were those of a run of `ranks`, whose compute times differed by `spread` of their mean (None: not known).
    They are `measured` if they are those of the very program that is predicted, at the batches of a rank in `batches`
    (None: not known). A step has `passes`, each on an equal part of the batch. `factors` are more doubts of its times.
    """

    name: str
    fixed_s: float
    image_s: float
    ranks: int = 1
    spread: float | None = None
    measured: bool = False
    batches: tuple[float, float] | None = None
    passes: int = 1
    factors: tuple[Factor, ...] = ()

    def for_work(self, share: float) -> Device:
        """The device for images that each need `share` times as many multiply-adds (derived: at the same rate)."""
        if abs(share - 1) < 1e-9:
            return self
        return replace(self, name=f"{self.name}, {share:.3g} of the work at 224 x 224", image_s=self.image_s * share)

    def with_passes(self, passes: int) -> Device:
        """The device with so many passes in a step in place of one: each has the fixed time (derived)."""
        if passes == self.passes:
            return self
        times = passes / self.passes
        batches = (times * self.batches[0], times * self.batches[1]) if self.batches else None
        return replace(self, fixed_s=times * self.fixed_s, passes=passes, batches=batches)

    def slower(self, times: float, factors: tuple[Factor, ...], name: str) -> Device:
        """The device with another program, whose images take `times` as long, with these doubts."""
        return replace(self, name=name, image_s=self.image_s * times, factors=(*self.factors, *factors))

    def step_s(self, batch: float) -> float:
        """One step of `batch` images on this device, without communication."""
        return self.fixed_s + batch * self.image_s

    def backward_s(self, batch: float) -> float:
        """The part of a step in which gradients become ready: backward of its last pass."""
        return BACKWARD_SHARE * self.step_s(batch) / self.passes


def measured(name: str, batch: float, step_s: float, fixed_s: float, ranks: int = 1) -> Device:
    """A device from one step of its program on so many ranks; `fixed_s` is at most half of it."""
    fixed = min(fixed_s, step_s / 2)
    return Device(name, fixed, (step_s - fixed) / batch, ranks, measured=True)


def device(name: str) -> Device:
    """The shipped device `name` with its published program. Raises UserError if there is none."""
    written = constants.entry("gpus", name, "--gpu")
    batch, rate = reference_batch(name), constants.number(written["images_per_s"])
    found = measured(name, batch, batch / rate, constants.number(written["fixed_s"]))
    return replace(found, ranks=written.get("ranks", 1), measured=False)


def device_with(name: str, chosen: Variant) -> Device:
    """The shipped device with the program of a training, as fast beside its published one as on the measured card."""
    found, written = device(name), constants.entry("gpus", name, "--gpu")
    own, units = written.get("own", False), written["units"]
    known = Variant(written["precision"])
    times = images_per_s(known, units) / images_per_s(chosen, units)
    if own:
        batch = reference_batch(name)
        of_step = measured(name, batch, batch / images_per_s(chosen, units), found.fixed_s)
        found = replace(of_step, ranks=found.ranks, factors=factors(chosen, chosen, units, "host"))
        return replace(found, name=f"{name} with torusrun in {chosen}").with_passes(chosen.passes)
    label = name if times == 1.0 else f"{name}, whose rate in {known} was that of another program, in {chosen}"
    return found.slower(times, factors(known, chosen, units, "gpu"), label).with_passes(chosen.passes)


def reference_batch(name: str) -> float:
    """The images of a rank at which the rate of a shipped device was measured."""
    return constants.number(constants.entry("gpus", name, "--gpu")["reference_batch"])


def power_w(name: str) -> float | None:
    """The most watts that the GPU of the shipped device `name` may draw; None if unknown."""
    written = constants.entry("gpus", name, "--gpu").get("power_w")
    return constants.number(written) if written else None


def device_for(architecture: str | None, gpu_type: str | None = None) -> str | None:
    """The name of the device of this type of a site, as h200, or else of this architecture, as sm_70.

    None for an unknown one, and for a part of a GPU (MIG), as a100_3g.20gb: nothing says how fast it is.
    """
    if gpu_type and MIG.search(gpu_type.lower()):
        return None
    devices = constants.table("gpus").items()
    of_type = (name for name, written in devices if (gpu_type or "").lower() in written.get("types", ()))
    return next(of_type, next((name for name, written in devices if architecture in written["matches"]), None))
