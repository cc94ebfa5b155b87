"""The model, data set, optimizer and schedule that a recipe names, built and checked before the ranks meet."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial

import torch
import torch.distributed as dist
from torch import nn

from training.agree import on_all_ranks
from training.data.view import view_of
from training.progress import BatchAt, always
from training.recipe import names
from training.recipe.build import build, expect
from training.recipe.protocols import DataSet, Optimizer, Schedule
from training.recipe.reading import ConfigError
from training.recipe.train import Train

DATA_SET = ("train_samples", "test_samples", "classes", "shape", "train_batch", "test_shard")
OPTIMIZER = ("step", "state_dict", "load_state_dict")


@dataclass(frozen=True)
class Parts:
    """What learns, from what, and how."""

    data: DataSet
    model: nn.Module
    optimizer: Optimizer
    rate_at: Schedule
    batch_at: BatchAt


def build_parts(train: Train, device: torch.device) -> Parts:
    """The parts of a training, the model on `device`. Raises ConfigError that names the key of what cannot be built."""
    data = _data(train)
    model = _model(train, data).to(device)
    return Parts(data, model, _optimizer(train, model), _schedule(train), always(train.batch))


def settle(optimizer: Optimizer, device: torch.device) -> None:
    """Let all ranks compute alike, once they have met; rank 0's log says if that costs speed."""
    agree = getattr(optimizer, "agree", None)
    note = agree(partial(on_all_ranks, device=device)) if agree else None
    if note and dist.get_rank() == 0:
        print(f"training: {note}", file=sys.stderr, flush=True)


def _data(train: Train) -> DataSet:
    data: DataSet = build("train.data", train.data, names.DATA_SETS, seed=train.seed)
    expect("train.data", train.data, data, "a data set", DATA_SET)
    if not hasattr(data, "look") and (changed := view_of(train.data).changed()):
        raise ConfigError(f"train.data.{changed[0]}: {train.data.name} has no method 'look': its images cannot change")
    if use := getattr(data, "use", None):
        use(train.data.workers)
    return data


def _model(train: Train, data: DataSet) -> nn.Module:
    torch.manual_seed(train.seed)
    shape, classes = tuple(data.shape), data.classes
    model = build("train.model", train.model, names.MODELS, classes=classes, shape=shape, seed=train.seed)
    if not isinstance(model, nn.Module) or not list(model.parameters()):
        raise ConfigError(
            f"train.model: {train.model.name} must return a torch.nn.Module with parameters, not {model!r}"
        )
    return model


def _optimizer(train: Train, model: nn.Module) -> Optimizer:
    optimizer: Optimizer = build("train.optimizer", train.optimizer, names.OPTIMIZERS, model, train)
    expect("train.optimizer", train.optimizer, optimizer, "an optimizer", OPTIMIZER)
    return optimizer


def _schedule(train: Train) -> Schedule:
    schedule: Schedule = build("train.schedule", train.schedule, names.SCHEDULES, train)
    expect("train.schedule", train.schedule, schedule, "a function", ["__call__"])
    return schedule
