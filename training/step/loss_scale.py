"""Loss scaling for fp16: small gradients survive, and steps whose gradients overflow are skipped.

The loss is multiplied by a power of two before backward, and the gradients are divided by it after. So no bit changes
unless a number leaves the range of fp16. Source: Micikevicius et al. 2018, arXiv 1710.03740, section 3.2; the factors
are those of torch.amp.GradScaler (torch 2.13, verified in its code).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from torusrun.training.reporting.exits import TrainingError

GROWTH, BACKOFF = 2.0, 0.5
FLOOR = 2.0**-24  # fp16's smallest positive number: a smaller scale makes gradients of 1 vanish
MOST_SKIPPED = 100  # steps in a row at the floor


class LossScale:
    """`scale` doubles after `growth_every` good steps in a row and halves after a step that overflows, down to FLOOR.

    The gradients are means over all ranks. If a number is not finite on one rank, the mean is not finite, and all ranks
    see the same bits. So they skip the same steps without communication.
    """

    def __init__(self, scale: float, growth_every: int) -> None:
        self.scale = 2.0 ** round(math.log2(scale))
        self.skipped = 0
        self._growth_every = growth_every
        self._good = self._skipped_at_floor = 0

    def unscale_(self, gradients: list[Tensor]) -> bool:
        """Divide the gradients by the scale and adapt it; returns whether all were finite. It waits for the device.

        Raises TrainingError, on all ranks, once no scale helps.
        """
        largest = torch.stack(torch._foreach_norm(gradients, math.inf)).amax()  # amax returns NaN if there is one
        finite = math.isfinite(largest.item())
        if finite:
            torch._foreach_mul_(gradients, 1.0 / self.scale)
        self._adapt(finite)
        return finite

    def state_dict(self) -> dict[str, float]:
        """The state for a checkpoint."""
        return {"scale": self.scale, "good": float(self._good), "skipped": float(self.skipped)}

    def load_state_dict(self, state: dict[str, float]) -> None:
        """Continue from a `state_dict`."""
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
        elif self._good == self._growth_every:
            self.scale, self._good = self.scale * GROWTH, 0
