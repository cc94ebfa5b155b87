"""The weights at the start, from a file: `train.model.weights`."""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from pathlib import Path

import torch
from torch import Tensor, nn

from torusrun.training.files import safetensors
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import ModelKeys

KEY = "train.model.weights"
SHOWN = 3
COUNTER = "num_batches_tracked"  # of batch norm: older files lack it


def load(model: nn.Module, keys: ModelKeys) -> None:
    """Take all weights and buffers from the file, but those that `new` names. Raises ConfigError if they do not fit."""
    if keys.weights is None:
        return
    path = Path(os.path.expandvars(os.path.expanduser(keys.weights)))
    try:
        found = safetensors.read(path)
    except OSError as error:
        raise ConfigError(f"{KEY}: {path}: cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{KEY}: {path}: {error}") from None
    own = {name: tensor for name, tensor in model.state_dict().items() if not name.startswith(keys.new)}
    given = {name: tensor for name, tensor in found.items() if not name.startswith(keys.new)}
    if wrong := _misfit(own, given):
        raise ConfigError(
            f"{KEY}: {path}: {wrong}; names that begin with one of 'train.model.new' are not read from it"
        )
    with torch.no_grad():
        for name, tensor in own.items():
            if name in given:
                tensor.copy_(given[name])


def _misfit(own: Mapping[str, Tensor], given: Mapping[str, Tensor]) -> str:
    if missing := [name for name in own if name not in given and not name.endswith(COUNTER)]:
        return f"it lacks {_some(missing)}"
    if unknown := [name for name in given if name not in own]:
        return f"the network has no {_some(unknown)}"
    for name, tensor in given.items():
        if tensor.shape != own[name].shape:
            return f"{name} has the shape {tuple(tensor.shape)}, and in the network {tuple(own[name].shape)}"
    return ""


def _some(names: Collection[str]) -> str:
    others = len(names) - SHOWN
    return ", ".join([*list(names)[:SHOWN], *([f"and {others} more"] if others > 0 else [])])
