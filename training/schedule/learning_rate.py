"""The learning rate as a pure function of progress in epochs.

Warm-up: rate = warmup_from + (lr - warmup_from) * epoch / warmup_epochs, the gradual warm-up of Goyal et al. 2017,
section 2.2. Decay: rate = end_lr + (lr - end_lr) * f, where f falls from 1 after the warm-up to 0 at the end.

cosine and polynomial use the middle of a step. The others use its begin, because publications count iterations from 0.
So a multiple of the step's epochs gives a rate of the published table.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from torusrun.training.progress import Moment
from torusrun.training.recipe.key import Limits
from torusrun.training.recipe.protocols import Schedule
from torusrun.training.recipe.reading import ConfigError, number
from torusrun.training.recipe.train import Train

Decay = Callable[[float], float]
OPTIONS = "train.schedule.options"
EPOCHS, POWER, FACTOR = Limits(above=0, at_most=1e6), Limits(above=0, at_most=100), Limits(at_least=0, at_most=1e6)


def cosine(progress: float) -> float:
    """A decay from 1 at progress 0 to 0 at progress 1 along half a cosine (Loshchilov & Hutter 2017, eq. 5)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def polynomial(power: float) -> Decay:
    """A decay from 1 to 0 as (1 - progress) ** power; LARS usually has power 2 (You et al. 2017)."""
    return lambda progress: (1.0 - progress) ** power


def constant(progress: float) -> float:
    """No decay: always 1."""
    return 1.0


def learning_rate(
    epoch: float,
    *,
    peak: float,
    epochs: float,
    warmup_epochs: float,
    decay: Decay = cosine,
    warmup_from: float = 0.0,
    end_lr: float = 0.0,
) -> float:
    """The rate at a fractional `epoch`: from `warmup_from` to `peak` in `warmup_epochs`, then to `end_lr` by `decay`.

    After the end the rate stays at its last value.
    """
    if epoch < warmup_epochs:
        return warmup_from + (peak - warmup_from) * epoch / warmup_epochs
    if epoch >= epochs:
        return end_lr + (peak - end_lr) * decay(1.0)
    return end_lr + (peak - end_lr) * decay((epoch - warmup_epochs) / (epochs - warmup_epochs))


def build_cosine(train: Train) -> Schedule:
    """Warm-up, then half a cosine."""
    return _schedule(train, cosine, middle=True)


def build_polynomial(train: Train, power: float = 2.0) -> Schedule:
    """Warm-up, then a polynomial of this power."""
    return _schedule(train, polynomial(number(f"{OPTIONS}.power", power, POWER)), middle=True)


def build_linear(train: Train) -> Schedule:
    """Warm-up, then a straight line: TensorFlow's polynomial_decay of power 1, counted from the end of the warm-up."""
    return _schedule(train, polynomial(1.0))


def build_constant(train: Train) -> Schedule:
    """Warm-up, then the same rate to the end."""
    return _schedule(train, constant)


def build_step(train: Train, at: tuple[float, ...] | None = None, factor: float = 0.1) -> Schedule:
    """Warm-up, then the rate is multiplied by `factor` at each epoch of `at`.

    Goyal et al. 2017, section 5.1: by 0.1 at epochs 30, 60 and 80 of 90; without `at` these are scaled to the run.
    """
    if at is not None and not isinstance(at, (tuple, list)):
        raise ConfigError(f"{OPTIONS}.at must be a list of epochs, not {at!r}")
    scaled = tuple(train.epochs * share for share in (30 / 90, 60 / 90, 80 / 90))
    epochs = scaled if at is None else tuple(number(f"{OPTIONS}.at", epoch, EPOCHS) for epoch in at)
    number(f"{OPTIONS}.factor", factor, FACTOR)
    rate_at = build_constant(train)
    return lambda moment: rate_at(moment) * factor ** sum(moment.begins >= epoch for epoch in epochs)


def _schedule(train: Train, decay: Decay, middle: bool = False) -> Schedule:
    """The rate at the begin of a step, or in its middle, with the recipe's other keys."""
    keys = train.schedule

    def rate_at(moment: Moment) -> float:
        return learning_rate(
            moment.epochs if middle else moment.begins,
            peak=train.optimizer.lr,
            epochs=train.epochs,
            warmup_epochs=keys.warmup_epochs,
            decay=decay,
            warmup_from=keys.warmup_from,
            end_lr=keys.end_lr,
        )

    return rate_at
