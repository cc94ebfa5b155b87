"""The choice of the implementation of LARS for a model."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from training.optim.foreach import Foreach
from training.optim.kernel import Kernel, Rule, Unavailable, is_dense
from training.recipe.reading import ConfigError

KEY = "train.optimizer.lars.form"


def kernel_for(weights: Sequence[Tensor], rule: Rule) -> tuple[Kernel, str]:
    """The kernel of this rank, and why it is not a fused one if it should be.

    Raises ConfigError if the form that the recipe names is not available.
    """
    if rule.keys.form == "foreach":
        return Foreach(rule), ""
    try:
        return _fused(weights, rule), ""
    except Unavailable as error:
        if rule.keys.form == "fused":
            raise ConfigError(f"{KEY}: {rule.keys.form!r} cannot be had: {error}; 'auto' does without") from None
        return Foreach(rule), str(error)


def _fused(weights: Sequence[Tensor], rule: Rule) -> Kernel:
    for weight in weights:
        if weight.dtype != torch.float32 or not is_dense(weight):
            raise Unavailable("it takes float32 weights that are contiguous or channels_last")
    if weights[0].is_cuda:
        try:
            from training.optim.triton_lars import Triton  # a second to import
        except ImportError as error:
            raise Unavailable(f"Triton cannot be imported: {error}") from None
        return Triton(rule, weights[0].device)
    from training.optim.cpp import Cpp  # starts a compiler

    return Cpp(rule)
