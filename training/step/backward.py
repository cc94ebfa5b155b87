"""Forward and backward of one rank's share of a step, in micro-batches and in the precision of the recipe."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext

import torch
from torch import Tensor, nn
from torch.nn import functional

from torusrun.training.recipe.train import Train
from torusrun.training.reporting.exits import TrainingError

GROWTH, GROWTH_STEPS, BACKOFF = 2.0, 2000, 0.5  # torch.amp.GradScaler's (torch 2.13, verified in its code)
FLOOR = 2.0**-24  # fp16's smallest positive number: a smaller scale makes gradients of 1 vanish
MOST_SKIPPED = 100  # steps in a row at the floor


class LossScale:
    """The factor of the loss in fp16, so that small gradients survive backward; they are divided by it afterwards.

    It is a power of two: no bit changes unless a number leaves the range of fp16. Source: Micikevicius et al. 2018,
    arXiv 1710.03740, section 3.2. `scale` doubles after GROWTH_STEPS good steps in a row and halves after a step that
    overflows, down to FLOOR.

    The gradients are means over all ranks. If a number is not finite on one rank, the mean is not finite, and all ranks
    see the same bits. So they skip the same steps without communication.
    """

    def __init__(self, scale: float) -> None:
        self.scale = 2.0 ** round(math.log2(scale))
        self.skipped = 0
        self._good = self._skipped_at_floor = 0

    def unscale_(self, gradients: list[Tensor]) -> bool:
        """Divide the gradients by the scale and adapt it; returns whether all were finite. It waits for the device.

        Raises TrainingError, on all ranks, once no scale helps.
        """
        largest = torch.stack(torch._foreach_norm(gradients, math.inf)).amax()  # amax returns NaN if a norm is NaN
        finite = math.isfinite(largest.item())
        if finite:
            torch._foreach_mul_(gradients, 1.0 / self.scale)
        self._adapt(finite)
        return finite

    def state_dict(self) -> dict[str, float]:
        return {"scale": self.scale, "good": float(self._good), "skipped": float(self.skipped)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        self.scale, self._good, self.skipped = state["scale"], int(state["good"]), int(state["skipped"])

    def _adapt(self, finite: bool) -> None:
        self._good = self._good + 1 if finite else 0
        self.skipped += not finite
        self._skipped_at_floor = 0 if finite or self.scale > FLOOR else self._skipped_at_floor + 1
        if self._skipped_at_floor == MOST_SKIPPED:
            raise TrainingError(
                f"the gradients of {MOST_SKIPPED} steps in a row are not finite, also with the smallest loss scale: "
                "the training has diverged, or its values are too large for fp16; submit a run with a lower learning "
                "rate or train.precision: bf16"
            )
        if not finite:
            self.scale = max(self.scale * BACKOFF, FLOOR)
        elif self._good == GROWTH_STEPS:
            self.scale, self._good = self.scale * GROWTH, 0


DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}


class Backward:
    """Adds gradients to every parameter's `.grad`; with fp16 they are multiplied by `scale.scale`.

    Weights, and so their gradients, are in fp32; matrix products and convolutions are in `precision` (autocast).
    """

    def __init__(self, train: Train, device: torch.device) -> None:
        self._micro_batches, self._smoothing, self._device = train.accumulate, train.label_smoothing, device
        self._dtype = DTYPES.get(train.precision)
        self.scale = LossScale(train.loss_scale) if train.precision == "fp16" else None

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
