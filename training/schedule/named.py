"""The schedule of the learning rate that a recipe names."""

from __future__ import annotations

from training.recipe import names
from training.recipe.build import build, expect
from training.recipe.protocols import Schedule
from training.recipe.train import Train


def named(train: Train) -> Schedule:
    """The schedule that train.schedule names. Raises ConfigError if it cannot be built."""
    schedule: Schedule = build("train.schedule", train.schedule, names.SCHEDULES, train)
    expect("train.schedule", train.schedule, schedule, "a function", ["__call__"])
    return schedule
