"""The doubts of a step, each with its source in data/doubts.yaml."""

from __future__ import annotations

from math import hypot, pi, sqrt

from torusrun.orchestrator.forecast import constants
from torusrun.orchestrator.forecast.device import Device
from torusrun.orchestrator.forecast.interval import NORMAL, Doubt, Factor, Interval, around, together
from torusrun.orchestrator.forecast.step import Step, largest_ranks
from torusrun.training.reporting.events import MEASURED_STEPS

SAME = "compute differs from run to run of one program"
FEW = "the steps of the measurement differ by {:.2g} % from each other, as on shared cores"
OTHER = "the rate of a GPU was measured with another program (`torusrun calibrate` measures yours)"
SPREAD = "the wait for the slowest of {:,} ranks differs from program to program"
BEYOND = "nothing is published about {:,} ranks: the largest known cluster has {:,} GPUs"
LINKS = "the times of the links are not measured"
LINKS_MEASURED = "an all-reduce differs from the measured links"
SHARED = "{:g} ranks share a core: the time that a step waits for ranks without a core is unknown"
CACHED = "it is unknown how many of the images the nodes hold in memory"
BATCH = "no published rank has a batch of {:g}, and the fixed time of a step is doubtful"
OTHER_BATCH = "the step was measured at {} images of a rank, not at {:g} (`torusrun calibrate` measures it)"


def number(name: str) -> float:
    """A constant of data/doubts.yaml."""
    return constants.number(constants.table("doubts")[name])


def links_factor(error: float | None = None) -> Interval:
    """How many times as long an all-reduce may take: by the largest error of measured links, or over described ones."""
    if error is None:
        return Interval(1 / number("links_described"), number("links_described"))
    low, high = number("links_measured_low"), number("links_measured_high")
    return Interval(min(low, 1 / (1 + error)), max(high, 1 + error))


def same_program(spread: float | None = None) -> Factor:
    """The doubt of compute that was measured with the very program, by `torusrun calibrate` if its spread is known.

    Source: a measurement is the median of n steps, whose standard error is sqrt(pi / 2) sigma / sqrt(n) (a standard
    formula for normal numbers).
    """
    repeated = number("same_program") - 1
    by_chance = NORMAL * sqrt(pi / 2) * (spread or 0.0) / sqrt(MEASURED_STEPS - 1)
    factor = 1 + hypot(repeated, by_chance)
    why = FEW.format(100 * spread) if spread and by_chance > repeated else SAME
    return Factor(why, Interval(1 / factor, factor))


def other_program(factor: Interval | None = None) -> Factor:
    """The doubt of compute by the rate of another program; by default, that of all published rows of this kind."""
    return Factor(OTHER, factor or Interval(number("other_program_low"), number("other_program_high")))


def interval_of(step: Step, reasons: tuple[Doubt, ...]) -> Interval:
    """The interval of a step with these doubts: it takes as long as its longer part, the step itself or the input."""
    busy, reading = around(step.busy_s, [doubt for doubt in reasons if doubt.why != CACHED]), step.reading_between_s
    return Interval(max(busy.low, reading.low), max(busy.high, reading.high))


def sharing(step: Step, ranks_per_core: float) -> tuple[Doubt, ...]:
    """The wait for ranks without a core, if ranks share cores: at most until the others on a core have computed."""
    if ranks_per_core <= 1:
        return ()
    return (Doubt(SHARED.format(ranks_per_core), 0.0, (ranks_per_core - 1) * step.compute_s),)


def of_step(device: Device, batch: float, step: Step, compute: Factor, links_factor: Interval) -> tuple[Doubt, ...]:
    """The doubts of a step with `batch` images on a rank."""
    return (
        *(_between(why, step.compute_s, factor.times(step.compute_s)) for why, factor in (compute, *device.factors)),
        *_stragglers(step),
        _links(step, links_factor),
        *_batch(device, batch),
        *_input(step),
    )


def _stragglers(step: Step) -> tuple[Doubt, ...]:
    if not step.stragglers:
        return ()
    ranks, known = step.stragglers.ranks, largest_ranks()
    why = SPREAD.format(ranks) if ranks <= known else BEYOND.format(ranks, known)
    return (_between(why, step.stragglers_s, step.stragglers.wait_between(step.compute_s)),)


def _links(step: Step, factor: Interval) -> Doubt:
    low, high = step.exposed_between_s
    between = Interval(low + step.norms_s * factor.low, high + step.norms_s * factor.high)
    why = LINKS_MEASURED if factor != links_factor() else LINKS
    return _between(why, step.exposed_s + step.norms_s, between)


def _input(step: Step) -> tuple[Doubt, ...]:
    """Why the wait for input may be shorter or longer; nothing if it is 0 either way."""
    low, high = (max(0.0, bound - step.busy_s) for bound in step.reading_between_s)
    return (_between(CACHED, step.input_s, Interval(low, high)),) if high else ()


def _batch(device: Device, batch: float) -> tuple[Doubt, ...]:
    """The doubt of a batch that was not measured."""
    if device.batches:
        return _other_batch(device, batch, *device.batches)
    if device.measured or number("smallest_batch") <= batch <= number("largest_batch"):
        return ()
    return (Doubt(BATCH.format(batch), device.fixed_s, device.fixed_s),)


def _other_batch(device: Device, batch: float, least: float, most: float) -> tuple[Doubt, ...]:
    """The doubt of a batch beside those that were measured, at which the line through them has no points.

    Source: derived. A smaller batch takes at least its share of the measured step, and no longer than that step; the
    upper bound is the geometric mean of the line and the whole step. A larger batch takes at most in proportion.
    """
    measured_at = f"{least:g}" if least == most else f"{least:g} to {most:g}"
    line_s, why = device.step_s(batch), OTHER_BATCH.format(measured_at, batch)
    if batch < least:
        whole_s = device.step_s(least)
        return (Doubt(why, line_s - whole_s * batch / least, sqrt(line_s * whole_s) - line_s),)
    if batch > most:
        return (Doubt(why, device.fixed_s, device.fixed_s * (batch / most - 1)),)
    return ()


def all_of(compute: Factor, device: Device) -> Interval:
    """How many times as long compute may take, for all reasons together."""
    return together([compute.between, *(factor.between for factor in device.factors)])


def _between(why: str, time_s: float, between: Interval) -> Doubt:
    return Doubt(why, max(0.0, time_s - between.low), max(0.0, between.high - time_s))
