"""Forward, backward and update of one device: t(b) = fixed + b / rate.

Source: derived. Two numbers describe a device: its published rate at a large batch, and a fixed time per step for every
batch (launches, the optimizer). Backward takes two thirds of a step, by multiplications.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from torusrun.orchestrator.network.prediction import constants

BACKWARD_SHARE = 2 / 3


@dataclass(frozen=True)
class Device:
    """A GPU with its software.

    Its steps were those of a run of `ranks`, whose compute times differed by `spread` of their mean (None: not known).
    They are `measured` if they are those of the very program that is predicted.
    """

    name: str
    fixed_s: float
    image_s: float
    ranks: int = 1
    spread: float | None = None
    measured: bool = False

    def for_work(self, share: float) -> Device:
        """The device for images that each need `share` times as many multiply-adds (derived: at the same rate)."""
        if abs(share - 1) < 1e-9:
            return self
        return replace(self, name=f"{self.name}, {share:.3g} of the work at 224 x 224", image_s=self.image_s * share)

    def step_s(self, batch: float) -> float:
        """One step of `batch` images on this device, without communication."""
        return self.fixed_s + batch * self.image_s

    def backward_s(self, batch: float) -> float:
        """The part of a step in which gradients become ready, the last of them at its end."""
        return BACKWARD_SHARE * self.step_s(batch)


def measured(name: str, batch: float, step_s: float, fixed_s: float, ranks: int = 1) -> Device:
    """A device from one step of its program on so many ranks; `fixed_s` is at most half of it."""
    fixed = min(fixed_s, step_s / 2)
    return Device(name, fixed, (step_s - fixed) / batch, ranks, measured=True)


def device(name: str) -> Device:
    """The shipped device `name`. Raises UserError if there is none."""
    written = constants.entry("gpus", name, "--gpu")
    batch, rate = constants.number(written["reference_batch"]), constants.number(written["images_per_s"])
    found = measured(name, batch, batch / rate, constants.number(written["fixed_s"]))
    return replace(found, ranks=written.get("ranks", 1), measured=False)


def power_w(name: str) -> float | None:
    """The most watts that the GPU of the shipped device `name` may draw; None if unknown."""
    written = constants.entry("gpus", name, "--gpu").get("power_w")
    return constants.number(written) if written else None


def device_for(architecture: str | None) -> str | None:
    """The name of the device with this architecture, as in sm_70."""
    names = (name for name, written in constants.table("gpus").items() if architecture in written["matches"])
    return next(names, None)
