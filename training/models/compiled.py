"""torch.compile for a network: `train.compile`. The network keeps its names, and compiles in its first steps."""

from __future__ import annotations

import importlib.util
import os
import shutil
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import nn

from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import Train

COMPILERS = ("g++", "clang++")  # torch's own choice


def compile_(model: nn.Module, device: torch.device, precision: str) -> None:
    """Compile the network in place, for a precision. Raises ConfigError if the device's compiler is missing."""
    if device.type == "cuda":
        if importlib.util.find_spec("triton") is None:
            raise ConfigError(
                "train.compile: torch.compile needs Triton on a GPU, which this Python lacks; write false"
            )
    elif not any(map(shutil.which, [os.environ.get("CXX") or COMPILERS[0], *COMPILERS])):
        names = " or ".join(COMPILERS)
        why = f"torch.compile needs a C++ compiler on a CPU, and there is no {names} on the ranks' PATH"
        raise ConfigError(f"train.compile: {why}; load a module that has one, or write false")
    if hasattr(torch.compiler.config, "cache_key_tag"):  # torch 2.11 takes a network compiled for bf16 for one in fp16
        torch.compiler.config.cache_key_tag = precision
    model.compile(dynamic=False)  # so a resumed training compiles the same programs, in whatever phase it begins


def uncompiled(train: Train) -> AbstractContextManager[object]:
    """A context in which the network is not compiled: each size of test images would need another compilation."""
    return torch.compiler.set_stance("force_eager") if train.compile else nullcontext()
