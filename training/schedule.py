"""The values at each point of a training: phase, batch, images, weight decay and learning rate. No torch.

All are pure functions of progress, so a resumed training computes the same values. A step belongs to the phase in which
it begins; a phase that is shorter than a batch may have no step.

Without rates in the phases a schedule gives the learning rate, by epochs.
Warm-up: rate = lr * epoch / warmup_epochs, the gradual warm-up of Goyal et al. 2017, section 2.2.
Decay: rate = end_lr + (lr - end_lr) * f, where f falls from 1 after the warm-up to 0 at the end.
cosine and polynomial use the middle of a step. The others use its begin, because publications count iterations from 0.
So a multiple of the step's epochs gives a rate of the published table.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from torusrun.training.data.view import View, view_of
from torusrun.training.progress import Moment, Progress
from torusrun.training.recipe import names
from torusrun.training.recipe.key import Limits
from torusrun.training.recipe.names import build, expect
from torusrun.training.recipe.protocols import Schedule
from torusrun.training.recipe.reading import ConfigError, number
from torusrun.training.recipe.train import PhaseKeys, Train

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
    epoch: float, *, peak: float, epochs: float, warmup_epochs: float, decay: Decay = cosine, end_lr: float = 0.0
) -> float:
    """The rate at a fractional `epoch`: from 0 to `peak` in `warmup_epochs`, then to `end_lr` by `decay`.

    After the end the rate stays at its last value.
    """
    if epoch < warmup_epochs:
        return peak * epoch / warmup_epochs
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
            moment.epochs if middle else moment.begins, peak=train.optimizer.lr, epochs=train.epochs,
            warmup_epochs=keys.warmup_epochs, decay=decay, end_lr=keys.end_lr,
        )  # fmt: skip

    return rate_at


T = TypeVar("T")


@dataclass(frozen=True)
class Phase:
    """A part of a training with all its keys filled in; `start`, `until` and `reach` are epochs.

    Its steps begin at `first` samples or later, and before `end` samples. Without `lr` train.schedule gives the rate.
    """

    number: int
    start: float
    until: float
    first: int
    end: int
    lr: tuple[float, ...] | None
    power: float
    reach: float
    batch: int
    view: View
    weight_decay: float
    collapse: bool

    def rate(self, epoch: float) -> float | None:
        """The learning rate of a step that begins at `epoch`: to + (from - to) * (1 - x)^power.

        x goes from 0 at the start of the phase to 1 at `reach`, and stays 1. With power 1 it is Goyal et al. 2017's
        gradual warm-up and fast.ai 2018's linear pieces; with `reach` after the end, Intel Caffe's cycles (poly_cyc).
        """
        if not self.lr:
            return None
        begin, end = self.lr[0], self.lr[-1]
        x = min(1.0, (epoch - self.start) / (self.reach - self.start))
        return end + (begin - end) * math.pow(1.0 - x, self.power)


class Course:
    """The values of a training on `train_samples` samples, at each point.

    `schedule` is the schedule that train.schedule names; if none is given, it is built at its first use.
    """

    def __init__(self, train: Train, train_samples: int, schedule: Schedule | None = None) -> None:
        self._train, self._epoch_samples, self._given = train, train_samples, schedule
        self.phases = phases_of(train, train_samples)
        self.total_samples = train.epochs * train_samples
        self._ends = [phase.end for phase in self.phases]

    def phase_at(self, samples: int) -> Phase:
        """The phase of a step that begins when `samples` have been seen; the last phase after the end."""
        return self.phases[min(bisect_right(self._ends, samples), len(self.phases) - 1)]

    def batch_at(self, progress: Progress) -> int:
        """Samples of the next step, over all ranks."""
        return self.phase_at(progress.samples).batch

    def view_at(self, progress: Progress) -> View:
        return self.phase_at(progress.samples).view

    def weight_decay_at(self, progress: Progress) -> float:
        return self.phase_at(progress.samples).weight_decay

    def moment_at(self, progress: Progress) -> Moment:
        return progress.middle_of_step(self.batch_at(progress), self._epoch_samples)

    def facts_at(self, progress: Progress) -> dict[str, object]:
        """The values of the next step, by name, for a trace."""
        phase = self.phase_at(progress.samples)
        epochs = {"samples": progress.samples, "epoch": progress.epochs(self._epoch_samples)}
        decay = {"momentum": self._train.optimizer.momentum, "weight_decay": phase.weight_decay}
        return {**epochs, "phase": phase.number, **decay, **phase.view._asdict()}

    def rate_at(self, moment: Moment) -> float:
        """The learning rate of the step at `moment`. Raises ConfigError if the schedule cannot be built."""
        rate = self.phase_at(round(moment.begins * self._epoch_samples)).rate(moment.begins)
        return self._schedule(moment) if rate is None else rate

    def finished(self, progress: Progress) -> bool:
        """Whether every sample was seen in every epoch; the last batch may reach into the epoch after the last."""
        return progress.samples >= self.total_samples

    def total_steps(self, progress: Progress = Progress()) -> int:  # noqa: B008  (it cannot be changed)
        """Steps of the whole training, if it is now at `progress`."""
        return progress.steps + sum(steps for _, steps in self.steps_to_come(progress))

    def steps_to_come(self, progress: Progress = Progress()) -> list[tuple[Phase, int]]:  # noqa: B008
        """The phases from `progress` on, with their numbers of steps; 0 if the phase before covers all of it."""
        phases = []
        for phase in self.phases[self.phase_at(progress.samples).number :]:
            steps = progress.steps_at(phase.end, phase.batch)
            phases.append((phase, steps - progress.steps))
            progress = Progress(steps, progress.samples + (steps - progress.steps) * phase.batch)
        return phases

    @property
    def evaluations(self) -> int:
        """The number of evaluations in the whole training."""
        keys, epochs = self._train.evaluate, self._train.epochs
        due = range(keys.begins, epochs + 1, keys.every)
        return len(due) + (epochs not in due)

    def evaluates(self, before: Progress, after: Progress) -> bool:
        """Whether an evaluation is due between `before` and `after`; at the end it always is."""
        if self.finished(after):
            return True
        keys, epochs = self._train.evaluate, [int(at.epochs(self._epoch_samples)) for at in (before, after)]
        done, due = ((epoch - keys.begins) // keys.every if epoch >= keys.begins else -1 for epoch in epochs)
        return due > done

    @cached_property
    def _schedule(self) -> Schedule:
        return self._given or named(self._train)


def named(train: Train) -> Schedule:
    """The schedule that train.schedule names. Raises ConfigError if it cannot be built."""
    schedule: Schedule = build("train.schedule", train.schedule, names.SCHEDULES, train)
    expect("train.schedule", train.schedule, schedule, "a function", ["__call__"])
    return schedule


def phases_of(train: Train, train_samples: int) -> tuple[Phase, ...]:
    """The phases of a recipe, for a data set of `train_samples`; one phase if the recipe has none."""
    phases: list[Phase] = []
    for keys in train.phases or (PhaseKeys(until=train.epochs),):
        phases.append(_phase(train, train_samples, keys, phases[-1] if phases else None))
    return tuple(phases)


def _phase(train: Train, train_samples: int, keys: PhaseKeys, before: Phase | None) -> Phase:
    start = before.until if before else 0.0
    view = before.view if before else view_of(train.data)
    return Phase(
        number=before.number + 1 if before else 0, start=start, until=keys.until, first=before.end if before else 0,
        end=_samples_at(keys.until, train_samples), lr=keys.lr, power=keys.power,
        reach=keys.until if keys.reach is None else keys.reach,
        batch=_first_of(keys.batch, before.batch if before else train.batch),
        view=View(*(_first_of(getattr(keys, name, None), value) for name, value in view._asdict().items())),
        weight_decay=_first_of(keys.weight_decay, before.weight_decay if before else train.optimizer.weight_decay),
        collapse=keys.collapse,
    )  # fmt: skip


def _samples_at(epoch: float, epoch_samples: int) -> int:
    """The smallest number of samples of at least `epoch` passes; `epoch` may be a rounded k / epoch_samples."""
    near = round(epoch * epoch_samples)
    return next(n for n in range(near - 1, near + 2) if n / epoch_samples >= epoch)


def _first_of(value: T | None, other: T) -> T:
    return other if value is None else value
