"""Epochs to an accuracy by batch, for ResNet-50: to 75.9 % top-1 with LARS, or as a recipe was published.

MLPerf's reference convergence points (4.0) are what a training of today takes; they are linear in the logarithm of the
batch between them. The submissions to MLPerf v0.6 took more: they are the upper bound. A run that follows a recipe at
its published batch takes the recipe's epochs.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from math import log

from torusrun.orchestrator.forecast import constants
from torusrun.orchestrator.forecast.interval import Interval
from torusrun.training.recipe.published import load

REFERENCE = "at this batch with LARS (MLPerf's reference; its v0.6 submissions took more)"
SUBMITTED = "at this batch with LARS (MLPerf v0.6; today's reference ends at {:,})"
RECIPE = "as published of {} at this batch"
BEYOND = "no training with a batch above {:,} is published"
TARGET = "75.9 %"


@dataclass(frozen=True)
class Epochs:
    """Epochs to the target with their bounds and where they are from; None if nothing is published, and why."""

    expected: float | None
    interval: Interval
    source: str
    target: str = TARGET


UNKNOWN = Epochs(None, Interval(0.0, 0.0), "")


def to_target(batch: int) -> Epochs:
    """The epochs at this batch. Below the smallest known batch they are those of the smallest."""
    reference, submitted = _points("epochs_by_batch"), _points("submitted_by_batch")
    few, many = _between(reference, batch), _between(submitted, batch)
    if many is None:
        return Epochs(None, UNKNOWN.interval, BEYOND.format(submitted[-1][0]))
    spread = constants.number(constants.table("epochs")["spread"])
    if few is None:
        return Epochs(many, Interval(reference[-1][1], many * spread), SUBMITTED.format(reference[-1][0]))
    return Epochs(few, Interval(few / spread, max(few * spread, many)), REFERENCE)


def of_recipe(name: str, batch: int) -> Epochs | None:
    """The epochs of a recipe whose largest batch is this one, to its published accuracy; None at another batch."""
    recipe = load(name)
    written = recipe.written
    phases = [phase.get("batch", 0) for phase in written.get("phases", ())]
    if batch != max([written.get("batch", 0), *phases]):
        return None
    expected = float(written["epochs"])
    spread = constants.number(constants.table("epochs")["spread"])
    return Epochs(
        expected, Interval(expected / spread, expected * spread), RECIPE.format(name), recipe.facts["accuracy"].value
    )


def images() -> int:
    """The number of images in an epoch of ImageNet."""
    return int(constants.number(constants.table("epochs")["images"]))


def validation_images() -> int:
    """The number of images in its validation set."""
    return int(constants.number(constants.table("epochs")["validation_images"]))


def _points(name: str) -> list[tuple[int, float]]:
    return sorted((int(batch), constants.number(value)) for batch, value in constants.table("epochs")[name].items())


def _between(points: list[tuple[int, float]], batch: int) -> float | None:
    """The epochs at a batch; None above the largest."""
    batches = [known for known, _ in points]
    if batch > batches[-1]:
        return None
    if batch <= batches[0]:
        return points[0][1]
    at = bisect_left(batches, batch)
    (low, few), (high, many) = points[at - 1], points[at]
    return few + (many - few) * log(batch / low) / log(high / low)
