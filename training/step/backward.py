"""Forward and backward of one rank's share of a step, in micro-batches and in the precision of the recipe."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from torusrun.training.recipe.train import Train
from torusrun.training.step.loss_scale import LossScale

DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Backward:
    """Adds gradients to every parameter's `.grad`; with fp16 they are multiplied by `scale.scale`.

    Weights, and so their gradients, are in fp32; matrix products and convolutions are in `precision` (autocast).
    """

    def __init__(self, train: Train, device: torch.device) -> None:
        self._micro_batches, self._smoothing, self._device = train.accumulate, train.label_smoothing, device
        self._dtype = DTYPES.get(train.precision)
        fp16 = train.precision == "fp16"
        self.scale = LossScale(train.loss_scale.start, train.loss_scale.growth_every) if fp16 else None

    def precision(self) -> AbstractContextManager[object]:
        """A context for forward passes in the precision of the recipe."""
        return torch.autocast(self._device.type, self._dtype) if self._dtype else nullcontext()

    def run(
        self,
        module: nn.Module,
        inputs: Tensor,
        labels: Tensor,
        *,
        holding: Callable[[], AbstractContextManager[object]] = nullcontext,
        before_last: Callable[[Tensor], None] = lambda _: None,
    ) -> Tensor:
        """The mean loss over inputs [B, ...] and labels [B]; B divides by the micro-batches.

        All passes but the last run within `holding()`. `before_last` gets the loss just before the last backward.
        """
        parts = list(zip(inputs.chunk(self._micro_batches), labels.chunk(self._micro_batches), strict=True))
        factor = (self.scale.scale if self.scale else 1.0) / len(parts)
        total = torch.zeros((), device=self._device)
        for number, (some, theirs) in enumerate(parts, 1):
            last = number == len(parts)
            with nullcontext() if last else holding():
                with self.precision():
                    loss = functional.cross_entropy(module(some), theirs, label_smoothing=self._smoothing)
                total += loss.detach() / len(parts)
                if last:
                    before_last(total)
                torch.autograd.backward(loss * factor)
        return total
