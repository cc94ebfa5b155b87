"""LARS: every tensor's step is scaled by the ratio of its weights' norm to its gradient's (You et al. 2017).

    ratio = trust |w| / (|g| + decay |w| + eps), and 1 where |w| or |g| is 0
    u     = ratio (g + decay w)

The learning rate is inside the momentum (MLPerf's reference, NVIDIA's FusedLARS; verified in their code) or outside
(apex's LARC, timm; verified likewise). The two differ as soon as the rate changes:

    inside     v = momentum v + rate u,  w = w - v       (Nesterov: w = w - momentum v - rate u)
    outside    v = momentum v + u,       w = w - rate v  (Nesterov: w = w - rate (momentum v + u))

With `clip` the ratio is min(ratio / rate, 1), so that a tensor's own rate is at most the learning rate (LARC).
Vectors (biases, batch norm) are moved by plain momentum, without ratio and decay.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from training.recipe.train import LarsKeys, Train


class LARS:
    """One tensor after the other, always in the same order; nothing waits for the device."""

    def __init__(self, model: nn.Module, momentum: float, weight_decay: float, lars: LarsKeys) -> None:
        self._weights = dict(model.named_parameters())
        self._velocities = {name: torch.zeros_like(weight) for name, weight in self._weights.items()}
        self._momentum, self._weight_decay, self._lars = momentum, weight_decay, lars

    @torch.no_grad()
    def step(self, rate: float) -> None:
        """Move every weight along its `.grad`, which stays as it is."""
        for name, weight in self._weights.items():
            if weight.grad is not None:
                self._move(weight, self._update(weight, weight.grad, rate), self._velocities[name], rate)

    def state_dict(self) -> dict[str, Tensor]:
        """The velocities by parameter name."""
        return dict(self._velocities)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over velocities from `state_dict`; KeyError when one is missing."""
        for name, velocity in self._velocities.items():
            velocity.copy_(state[name])

    def _update(self, weight: Tensor, gradient: Tensor, rate: float) -> Tensor:
        """ratio (g + decay w), a tensor of its own for matrices."""
        if weight.ndim < 2:
            return gradient
        weight_norm, gradient_norm = torch.linalg.vector_norm(weight), torch.linalg.vector_norm(gradient)
        divisor = gradient_norm + self._weight_decay * weight_norm + self._lars.eps
        ratio = self._lars.trust * weight_norm / divisor
        if self._lars.clip:
            ratio = (ratio / rate).clamp(max=1.0)
        ratio = torch.where((weight_norm > 0) & (gradient_norm > 0), ratio, 1.0)
        return gradient.add(weight, alpha=self._weight_decay).mul_(ratio)

    def _move(self, weight: Tensor, update: Tensor, velocity: Tensor, rate: float) -> None:
        added, taken = (rate, 1.0) if self._lars.lr_in_momentum else (1.0, rate)
        velocity.mul_(self._momentum).add_(update, alpha=added)
        if self._lars.nesterov:
            weight.add_(velocity, alpha=-taken * self._momentum).add_(update, alpha=-rate)
        else:
            weight.add_(velocity, alpha=-taken)


def build(model: nn.Module, train: Train) -> LARS:
    """As `train.optimizer` says."""
    optimizer = train.optimizer
    return LARS(model, optimizer.momentum, optimizer.weight_decay, optimizer.lars)
