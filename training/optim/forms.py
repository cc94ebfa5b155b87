"""The choice of the implementation of LARS for a model."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from training.optim.foreach import Foreach
from training.optim.kernel import Kernel, Rule, Unavailable, is_dense
from training.recipe.reading import ConfigError

KEY = "train.optimizer.lars.form"


class Choice:
    """The `kernel` of this rank. All ranks need the same one, because two kernels differ in the last bits."""

    def __init__(self, weights: Sequence[Tensor], rule: Rule) -> None:
        """Raises ConfigError if the form that the recipe names is not available."""
        self._rule, self._missing = rule, ""
        self.kernel: Kernel = Foreach(rule)
        if rule.keys.form == "foreach":
            return
        try:
            self.kernel = _fused(weights, rule)
        except Unavailable as error:
            if rule.keys.form == "fused":
                raise ConfigError(f"{KEY}: {rule.keys.form!r} cannot be had: {error}; 'auto' does without") from None
            self._missing = str(error)

    def agree(self, all_ranks: Callable[[bool], bool]) -> str | None:
        """Use foreach if any rank must. `all_ranks` returns whether something is true on all of them.

        Returns a message for the user. All ranks must call it together.
        """
        if self._rule.keys.form in ("foreach", "fused") or all_ranks(not self._missing):
            return None
        self.kernel = Foreach(self._rule)
        why = self._missing or "another rank cannot"
        return f"LARS moves the weights by foreach, since not all ranks can fuse: {why}"


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
