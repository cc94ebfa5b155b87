"""Forward, backward and update of one device: t(b) = fixed + b / rate.

Source: derived. Two numbers describe a device: its published rate at a large batch, and a fixed time per step for every
batch (small kernels, the optimizer). Backward takes two thirds of a step, by multiplications. A step is never shorter
than the time in which the host launches its kernels, unless it is replayed as a CUDA graph.

How fast variants of a training are (precision, layout, torch.compile) was measured on two cards: data/programs.yaml.
A variant that was not measured is derived from those on an H200: a layout has the effect that it has in bf16,
torch.compile saves the same share or the same time of an image, whichever is less, and a precision without matrix units
is as fast as fp32. Every such step is a doubt. A published program of others was fused by hand: it counts as compiled
if ours is compiled.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Literal

from torusrun.orchestrator.forecast import constants
from torusrun.orchestrator.forecast.interval import Factor, Interval, together
from torusrun.training.recipe.facts import Variant

BEST_KNOWN = "h200"  # the card with the most measured programs; those of other cards are derived from them
Where = Literal["host", "card", "gpu", "processor"]
OTHER_HOST = "the rate is that of torusrun on one card of this type, with other versions"
OTHER_PROGRAM = "{} beside {} was measured on another GPU (`torusrun calibrate` measures yours)"
NOT_MEASURED = "{} was measured nowhere: it is made of the effects of its parts"
PROCESSOR = "how fast {} is beside {} on these processors is unknown (`torusrun calibrate` measures it)"
ARCHITECTURE = "the site names the architecture of its GPUs alone, taken as {}: node.gpu_type says which they are"
PASSES = "the fixed time of each of {} backward passes in a step is not measured"


def images_per_s(chosen: Variant, units: Collection[str]) -> float:
    """Images per second of one pass on an H200, if it had matrix units for these precisions alone."""
    variant = _with_units(chosen, units)
    if (known := _known(variant)) is not None:
        return known
    rate = _rate(Variant(variant.precision))
    if variant.channels_first:
        rate *= _rate(Variant("bf16", channels_first=True)) / _rate(Variant("bf16"))
    if not variant.compiled:
        return rate
    eager, compiled = _rate(Variant("bf16")), _rate(Variant("bf16", compiled=True))
    return min(rate * compiled / eager, 1 / (1 / rate - (1 / eager - 1 / compiled)))


def factors(known: Variant, chosen: Variant, units: Collection[str], where: Where) -> tuple[Factor, ...]:
    """The doubts of a rate for `chosen` that was made of a rate for `known`, in the place that is predicted.

    A "host" has the card on which the two were compared, a "card" is the card of `known`, a "gpu" is another card.
    """
    reasons = []
    same = replace(known, passes=1) == replace(chosen, passes=1)
    if where in ("host", "card"):
        reasons.append(_around(OTHER_HOST, "other_host"))
    elsewhere = ["other_gpu"] if not same and where in ("gpu", "card") else []
    if where == "processor":
        reasons += [_around(PROCESSOR.format(_words(chosen), _words(known)), "processor")] if not same else []
    elif _known(_with_units(chosen, units)) is None:
        reasons.append(_around(NOT_MEASURED.format(_words(chosen)), "not_measured", *elsewhere))
    elif elsewhere:
        reasons.append(_around(OTHER_PROGRAM.format(_words(chosen), _words(known)), *elsewhere))
    return tuple(reasons)


def _with_units(chosen: Variant, units: Collection[str]) -> Variant:
    precision = chosen.precision if chosen.precision in units else "fp32"
    return replace(chosen, precision=precision, passes=1)


def _words(chosen: Variant) -> str:
    return str(replace(chosen, passes=1))


def _known(chosen: Variant, card: str = BEST_KNOWN) -> float | None:
    written = constants.table("programs")["images_per_s"][card].get(str(chosen))
    return constants.number(written) if written else None


def _rate(chosen: Variant) -> float:
    rate = _known(chosen)
    assert rate is not None, f"data/programs.yaml lacks {chosen}"
    return rate


def _around(why: str, *names: str) -> Factor:
    known = (constants.number(constants.table("programs")[name]) for name in names)
    return Factor(why, together(Interval(1 / times, times) for times in known))


BACKWARD_SHARE = 2 / 3
SLOWER = re.compile(r"(^|[._-])\d+g\.\d+gb|h[12]00.*(pcie|nvl)")


@dataclass(frozen=True)
class Device:
    """A GPU with its software.

    Its steps were those of a run of `ranks`, whose compute times differed by `spread` of their mean (None: not known).
    They are `measured` if they are those of the very program that is predicted, at the batches of a rank in `batches`
    (None: not known). A step has `passes`, each on an equal part of the batch. It takes at least `launches_s`, the time
    of the host for its launches, unless it is `replayed`. `factors` are more doubts of its times.
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
    launches_s: float = 0.0
    replayed: bool = False

    def for_work(self, share: float) -> Device:
        """The device for images that each need `share` times as many multiply-adds (derived: at the same rate)."""
        if abs(share - 1) < 1e-9:
            return self
        return replace(self, name=f"{self.name}, {share:.3g} of the work at 224 x 224", image_s=self.image_s * share)

    def with_passes(self, passes: int) -> Device:
        """The device with so many passes in a step, not one: each has the fixed time and launches (derived)."""
        if passes == self.passes:
            return self
        times = passes / self.passes
        batches = (times * self.batches[0], times * self.batches[1]) if self.batches else None
        fixed_s, launches_s = times * self.fixed_s, times * self.launches_s
        return replace(self, fixed_s=fixed_s, launches_s=launches_s, passes=passes, batches=batches)

    def slower(self, times: float, factors: tuple[Factor, ...], name: str) -> Device:
        """The device with another program, whose images take `times` as long, with these doubts."""
        return replace(self, name=name, image_s=self.image_s * times, factors=(*self.factors, *factors))

    def step_s(self, batch: float) -> float:
        """One step of `batch` images on this device, without communication."""
        return max(self.launches_s, self.fixed_s + batch * self.image_s)

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
    one_step = measured(name, batch, batch / rate, constants.number(written["fixed_s"]))
    return replace(one_step, ranks=written.get("ranks", 1), measured=False)


def device_with(name: str, chosen: Variant) -> Device:
    """The shipped device with the program of a training: as measured, or made of what was measured on an H200."""
    published, written = device(name), constants.entry("gpus", name, "--gpu")
    own, units = written.get("own", False), written["units"]
    known = Variant(written["precision"], compiled=chosen.compiled and not own)
    replayed = chosen.compiled and chosen.precision != "fp16"  # the loss scale of fp16 is a number of the host
    launches_s = 0.0 if replayed else constants.number(constants.table("programs")["launches_s"])
    published = replace(published, launches_s=launches_s, replayed=replayed)
    times = images_per_s(known, units) / images_per_s(chosen, units)
    if not own:
        label = name if times == 1.0 else f"{name}, whose rate in {known} was that of another program, in {chosen}"
        return published.slower(times, factors(known, chosen, units, "gpu"), label).with_passes(chosen.passes)
    batch, here = reference_batch(name), _known(_with_units(chosen, units), name)
    rate = here or constants.number(written["images_per_s"]) / times
    of_step = measured(name, batch, batch / rate, published.fixed_s)
    doubts = factors(known, chosen, units, "host" if here or name == BEST_KNOWN else "card")
    ours = replace(published, image_s=of_step.image_s, measured=True, factors=doubts)
    return replace(ours, name=f"{name} with torusrun in {chosen}").with_passes(chosen.passes)


def reference_batch(name: str) -> float:
    """The images of a rank at which the rate of a shipped device was measured."""
    return constants.number(constants.entry("gpus", name, "--gpu")["reference_batch"])


def device_for(architecture: str | None, gpu_type: str | None = None) -> str | None:
    """The name of the device of this type of a site, as h200 or nvidia_h200, or else of this architecture, as sm_70.

    None for an unknown type, for a part of a GPU (MIG), as a100_3g.20gb, and for an H100 or H200 on PCIe or in pairs
    (NVL), because nothing says how fast it is.
    """
    if gpu_type and SLOWER.search(gpu_type.lower()):
        return None
    devices, words = constants.table("gpus").items(), set(re.split(r"[\W_]+", (gpu_type or "").lower()))
    of_type = (name for name, written in devices if words.intersection(written.get("types", ())))
    return next(of_type, next((name for name, written in devices if architecture in written["matches"]), None))


def of_architecture(name: str, gpu_type: str | None) -> tuple[Factor, ...]:
    """The doubt of a device that was chosen by the architecture alone, which faster GPUs have too."""
    written = constants.entry("gpus", name, "--gpu")
    if "faster" not in written or device_for(None, gpu_type) == name:
        return ()
    return (Factor(ARCHITECTURE.format(name), Interval(1 / constants.number(written["faster"]), 1.0)),)
