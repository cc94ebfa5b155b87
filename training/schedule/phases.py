"""The values at each point of a training: phase, batch, images, weight decay and learning rate.

All are pure functions of progress, so a resumed training computes the same values. A step belongs to the phase in which
it begins; a phase that is shorter than a batch may have no step.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from dataclasses import dataclass
from functools import cached_property
from typing import TypeVar

from torusrun.training.data.view import View, view_of
from torusrun.training.progress import Moment, Progress
from torusrun.training.recipe import names
from torusrun.training.recipe.build import build, expect
from torusrun.training.recipe.phases import PhaseKeys
from torusrun.training.recipe.protocols import Schedule
from torusrun.training.recipe.train import Train

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
    nodes: int | None
    collapse: bool

    def rate(self, epoch: float) -> float | None:
        """The learning rate of a step that begins at `epoch`: to + (from - to) * (1 - x)^power.

        x goes from 0 at the start of the phase to 1 at `reach`, and stays there. With power 1 it is Goyal et al. 2017's
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
        """The view of images in the next step."""
        return self.phase_at(progress.samples).view

    def weight_decay_at(self, progress: Progress) -> float:
        """The weight decay of the next step."""
        return self.phase_at(progress.samples).weight_decay

    def moment_at(self, progress: Progress) -> Moment:
        """The moment of the next step."""
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
        """Whether every sample was seen in every epoch; the last batch may reach into one epoch more."""
        return progress.samples >= self.total_samples

    def total_steps(self, progress: Progress = Progress()) -> int:  # noqa: B008  (it cannot be changed)
        """Steps of the whole training, if it is now at `progress`."""
        return progress.steps + sum(steps for _, steps in self.steps_to_come(progress))

    def steps_to_come(self, progress: Progress = Progress()) -> list[tuple[Phase, int]]:  # noqa: B008
        """The phases from `progress` on, with their numbers of steps; 0 if the phase before covers all of it."""
        found = []
        for phase in self.phases[self.phase_at(progress.samples).number :]:
            steps = progress.steps_at(phase.end, phase.batch)
            found.append((phase, steps - progress.steps))
            progress = Progress(steps, progress.samples + (steps - progress.steps) * phase.batch)
        return found

    @property
    def evaluations(self) -> int:
        """The number of evaluations in the whole training."""
        keys, epochs = self._train.evaluate, self._train.epochs
        due = range(keys.begins, epochs + 1, keys.every)
        return len(due) + (epochs not in due)

    def evaluates(self, before: Progress, after: Progress) -> bool:
        """Whether an evaluation is due between `before` and `after`; one is always due at the end."""
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
        number=before.number + 1 if before else 0,
        start=start,
        until=keys.until,
        first=before.end if before else 0,
        end=_samples_at(keys.until, train_samples),
        lr=keys.lr,
        power=keys.power,
        reach=keys.until if keys.reach is None else keys.reach,
        batch=_first_of(keys.batch, before.batch if before else train.batch),
        view=View(*(_first_of(getattr(keys, name), value) for name, value in view._asdict().items())),
        weight_decay=_first_of(keys.weight_decay, before.weight_decay if before else train.optimizer.weight_decay),
        nodes=_first_of(keys.nodes, before.nodes if before else None),
        collapse=keys.collapse,
    )


def _samples_at(epoch: float, epoch_samples: int) -> int:
    """The smallest number of samples of at least `epoch` passes; `epoch` may be a rounded k / epoch_samples."""
    near = round(epoch * epoch_samples)
    return next(n for n in range(near - 1, near + 2) if n / epoch_samples >= epoch)


def _first_of(value: T | None, other: T) -> T:
    return other if value is None else value
