"""The learning rate as a pure function of progress in epochs."""

from __future__ import annotations

import math
from collections.abc import Callable

from training.progress import Moment
from training.recipe.protocols import Schedule
from training.recipe.train import Train

Decay = Callable[[float], float]


def cosine(progress: float) -> float:
    """From 1 at progress 0 to 0 at progress 1 along half a cosine (Loshchilov & Hutter 2017, eq. 5)."""
    return 0.5 * (1.0 + math.cos(math.pi * progress))


def polynomial(power: float) -> Decay:
    """From 1 to 0 as (1 - progress) ** power; 2 is the usual companion of LARS (You et al. 2017)."""
    return lambda progress: (1.0 - progress) ** power


def learning_rate(epoch: float, *, peak: float, epochs: float, warmup_epochs: float, decay: Decay = cosine) -> float:
    """The rate at a fractional `epoch`: linear from 0 to `peak` in `warmup_epochs`, decayed to 0 at `epochs`.

    The linear warm-up is Goyal et al. 2017, section 2.2. Past the end the rate stays 0.
    """
    if epoch < warmup_epochs:
        return peak * epoch / warmup_epochs
    if epoch >= epochs:
        return 0.0
    return peak * decay((epoch - warmup_epochs) / (epochs - warmup_epochs))


def build_cosine(train: Train) -> Schedule:
    """Warm-up, then half a cosine."""
    return _schedule(train, cosine)


def build_polynomial(train: Train, power: float = 2.0) -> Schedule:
    """Warm-up, then a polynomial of this power."""
    return _schedule(train, polynomial(power))


def _schedule(train: Train, decay: Decay) -> Schedule:
    peak, epochs, warmup_epochs = train.optimizer.lr, train.epochs, train.schedule.warmup_epochs

    def rate_at(moment: Moment) -> float:
        return learning_rate(moment.epochs, peak=peak, epochs=epochs, warmup_epochs=warmup_epochs, decay=decay)

    return rate_at
