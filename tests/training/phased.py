"""A training on the digits whose batch, images and weight decay change, with a branch, in this process alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from training_runs import TRAIN, config

from torusrun.training.config import Config, Ranks
from torusrun.training.data.view import View
from torusrun.training.learner import Learner
from torusrun.training.parts import Parts, build_parts
from torusrun.training.recipe.names import OPTIMIZERS, build
from torusrun.training.recipe.protocols import DataSet
from torusrun.training.recipe.reading import record
from torusrun.training.recipe.train import PhaseKeys
from torusrun.training.schedule import Course

CPU = torch.device("cpu")
SAMPLES = 1437
EPOCHS = 2
PHASES = (
    PhaseKeys(1000 / SAMPLES, batch=60),
    PhaseKeys(1.4, batch=90, size=12, weight_decay=0.01, augment=False),
    PhaseKeys(1.6, collapse=True),
    PhaseKeys(EPOCHS, size=8),
)
STEPS = (17, 12, 3, 6)  # of each phase
SMALL, LARGE = View(), View(size=12, augment=False)


@pytest.fixture
def group() -> Iterator[None]:
    """A process group of this process alone, on one thread: two that share busy cores take turns at every operation."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()
    torch.set_num_threads(threads)


@cache
def digits() -> DataSet:
    """Read once: the file is text."""
    return build_parts(TRAIN, CPU).data


class Small(nn.Module):
    """A network for images of any size, whose steps take a millisecond."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Conv2d(1, 6, 3), nn.BatchNorm2d(6), nn.ReLU(), nn.AdaptiveAvgPool2d(2))
        self.head = nn.Linear(24, 10)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.layers(images).flatten(1))
        return logits


class Watched:
    """A data set that notes what it was asked for, how images looked, and what it was told to come."""

    def __init__(self, data: DataSet) -> None:
        self._data, self.asked = data, Counter[tuple[int, int]]()
        self.views: list[View] = []
        self.steps: list[tuple[View, list[tuple[int, int]]]] = []
        self.hints: list[tuple[int, list[tuple[int, int]]]] = []  # after so many steps

    def __getattr__(self, name: str) -> object:
        return getattr(self._data, name)

    def look(self, view: View) -> None:
        self.views.append(view)
        self._data.look(view)

    def prefetch(self, samples: list[tuple[int, int]]) -> None:
        self.hints.append((len(self.steps), samples))

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[torch.Tensor, torch.Tensor]:
        self.asked.update(samples)
        self.steps.append((self.views[-1], samples))
        return self._data.train_batch(samples)


def configured(folder: Path, **train: Any) -> Config:
    return record(Config, config(folder, **{"epochs": EPOCHS, "phases": PHASES, **train}))


def learner(folder: Path, **train: Any) -> tuple[Learner, Watched]:
    settings = configured(folder, **train)
    watched, model = Watched(digits()), Small()
    optimizer = build("train.optimizer", settings.train.optimizer, OPTIMIZERS, model, settings.train)
    parts = Parts(watched, model, optimizer, Course(settings.train, SAMPLES))
    return Learner(settings, Ranks(0, 1, 0), CPU, parts), watched
