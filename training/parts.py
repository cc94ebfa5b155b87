"""The model, data set, optimizer and schedule that a recipe names, built and checked before the ranks meet."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn

from torusrun.training.counted import first_of
from torusrun.training.data.view import View, view_of
from torusrun.training.files import safetensors
from torusrun.training.files.staged import local
from torusrun.training.meeting.agree import everyones, on_all_ranks
from torusrun.training.recipe import names
from torusrun.training.recipe.facts import LAYOUT
from torusrun.training.recipe.names import build, expect
from torusrun.training.recipe.protocols import DataSet, Optimizer, complete, lacks
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import ModelKeys, Train
from torusrun.training.reporting.output import warn
from torusrun.training.schedule import Course, named
from torusrun.training.step import form

DATA_SET = ("train_samples", "test_samples", "classes", "shape", "train_batch")
OPTIMIZER = ("step", "state_dict", "load_state_dict")


@dataclass(frozen=True)
class Parts:
    """The model, data set, optimizer and schedule of a training."""

    data: DataSet
    model: nn.Module
    optimizer: Optimizer
    course: Course


def build_parts(train: Train, device: torch.device) -> Parts:
    """The parts of a training, the model on `device`. Raises ConfigError that names the key of a part with an error."""
    form.check(train, device)
    own = _data(train)
    data = complete(own, DataSet)
    data.use(train.data.workers)
    data.look(view_of(train.data))
    model = _model(train, data).to(device)
    lays_out = train.model.name in names.MODELS.known and train.model.options.get(LAYOUT) is not False
    if device.type == "cuda" and lays_out:
        model.to(memory_format=torch.channels_last)  # type: ignore[call-overload]  # twice as fast in 16 bits
    optimizer = _optimizer(train, model)
    return Parts(data, model, optimizer, _course(train, own, optimizer))


def settle(optimizer: Optimizer, device: torch.device) -> None:
    """Make all ranks use the same implementation, once they have met; rank 0's log says if that costs speed."""
    note = complete(optimizer, Optimizer).agree(partial(on_all_ranks, device=device))
    if note and dist.get_rank() == 0:
        warn(f"training: {note}")


def check_alike(data: DataSet, device: torch.device) -> None:
    """Raises ConfigError, the same on all ranks, unless all have the same samples and classes; all call it together.

    Ranks that count epochs differently would wait for each other forever, or see samples twice.
    """
    which = int.from_bytes(hashlib.sha256(data.identity.encode()).digest()[:7], "big")
    own = torch.tensor([data.train_samples, data.test_samples, data.classes, which], device=device)
    first, *others = everyones(own).tolist()
    for rank, counts in enumerate(others, 1):
        if counts != first:
            words = f"{_counted(counts)}, and rank 0 {_counted(first)}"
            if counts[:3] == first[:3]:
                words = f"{_counted(counts)} as rank 0, and not the same ones"
            raise ConfigError(
                f"train.data: rank {rank} found {words}; let all nodes have the same files, which do not change while "
                "a run begins, and resume"
            )


def _counted(counts: Sequence[int]) -> str:
    return "{} samples, {} test samples and {} classes".format(*counts)


def _data(train: Train) -> DataSet:
    data: DataSet = build("train.data", train.data, names.DATA_SETS, seed=train.seed)
    tests = "test_batches" if hasattr(data, "test_batches") else "test_shard"
    expect("train.data", train.data, data, "a data set", (*DATA_SET, tests))
    _check_look("train.data", train, data, view_of(train.data))
    return data


def _check_look(key: str, train: Train, data: DataSet, view: View) -> None:
    if lacks(data, DataSet, "look") and (changed := view.changed()):
        raise ConfigError(f"{key}.{changed[0]}: {train.data.name} has no method 'look': its images cannot change")


def _model(train: Train, data: DataSet) -> nn.Module:
    torch.manual_seed(train.seed)
    shape, classes = tuple(data.shape), data.classes
    model = build("train.model", train.model, names.MODELS, classes=classes, shape=shape, seed=train.seed)
    if not isinstance(model, nn.Module) or not list(model.parameters()):
        raise ConfigError(
            f"train.model: {train.model.name} must return a torch.nn.Module with parameters, not {model!r}"
        )
    load_weights(model, train.model)
    return model


def _optimizer(train: Train, model: nn.Module) -> Optimizer:
    optimizer: Optimizer = build("train.optimizer", train.optimizer, names.OPTIMIZERS, model, train)
    expect("train.optimizer", train.optimizer, optimizer, "an optimizer", OPTIMIZER)
    return optimizer


def _course(train: Train, data: DataSet, optimizer: Optimizer) -> Course:
    schedule = None if train.phases and train.phases[0].lr else named(train)
    course = Course(train, data.train_samples, schedule)
    for phase in course.phases:
        key = f"train.phases[{phase.number}]"
        _check_look(key, train, data, phase.view)
        if lacks(optimizer, Optimizer, "before_step") and phase.weight_decay != train.optimizer.weight_decay:
            why = f"{train.optimizer.name} has no method 'before_step': it cannot change"
            raise ConfigError(f"{key}.weight_decay: {why}")
    return course


WEIGHTS = "train.model.weights"
SHOWN = 3
COUNTER = "num_batches_tracked"  # of batch norm: older files lack it


def load_weights(model: nn.Module, keys: ModelKeys) -> None:
    """Take all weights and buffers from the file, but those that `new` names. Raises ConfigError if they do not fit."""
    if keys.weights is None:
        return
    path = Path(os.path.expandvars(os.path.expanduser(keys.weights)))
    try:
        tensors = safetensors.read(local(path))
    except OSError as error:
        raise ConfigError(f"{WEIGHTS}: {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{WEIGHTS}: {path}: {error}") from None
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(keys.new)}
    given = {name: tensor for name, tensor in tensors.items() if not name.startswith(keys.new)}
    if wrong := _misfit(own, given):
        raise ConfigError(
            f"{WEIGHTS}: {path}: {wrong}; names that begin with one of 'train.model.new' are not read from it"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            if name in given:
                tensor.copy_(given[name])


def _misfit(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    if missing := [name for name in own if name not in given and not name.endswith(COUNTER)]:
        return f"it lacks {first_of(missing, SHOWN)}"
    if unknown := [name for name in given if name not in own]:
        return f"the network has no {first_of(unknown, SHOWN)}"
    for name, tensor in given.items():
        if tensor.shape != own[name].shape:
            return f"{name} has the shape {tuple(tensor.shape)}, and in the network {tuple(own[name].shape)}"
    return ""
