"""Which checkpoints stay: a pure function of the recipe's keys. No torch."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from torusrun.training.recipe.train import CheckpointKeys


class Point(NamedTuple):
    """A checkpoint after `step` steps and `epoch` epochs; its `accuracy` is None if it was not evaluated."""

    step: int
    epoch: float
    accuracy: float | None = None


def kept(points: Iterable[Point], keys: CheckpointKeys) -> set[int]:
    """The steps of the checkpoints that stay: the newest, the first in each period of epochs, the best.

    Of equally good ones the newest stays.
    """
    ordered = sorted(points)
    found = {point.step for point in ordered[-keys.last :]}
    if keys.every_epochs:
        periods: dict[int, int] = {}
        for point in ordered:
            periods.setdefault(int(point.epoch // keys.every_epochs), point.step)
        found |= {step for period, step in periods.items() if period}
    evaluated = [point for point in ordered if point.accuracy is not None]
    if keys.best and evaluated:
        found.add(max(evaluated, key=lambda point: (point.accuracy, point.step)).step)
    return found
