"""SGD with momentum as the recipes use it: no weight decay on normalization and biases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from training.recipe.train import Train


class SGD:
    """v = momentum * v + g + weight_decay * w; w = w - rate * v: the rate outside the momentum, as in torch.

    Vectors (biases, batch norm) get no decay (Goyal et al. 2017, section 5.3). One tensor after the other,
    always in the same order, so that equal gradients give equal bits. torch.optim.SGD computes the same, but
    imports the compiler, a second of start-up for every rank.
    """

    def __init__(self, model: nn.Module, momentum: float, weight_decay: float) -> None:
        self._weights = dict(model.named_parameters())
        self._velocities = {name: torch.zeros_like(weight) for name, weight in self._weights.items()}
        self._velocity_of = {weight: self._velocities[name] for name, weight in self._weights.items()}
        self._momentum, self._weight_decay = momentum, weight_decay

    def step(self, rate: float) -> None:
        """Move every weight along its `.grad`."""
        self.step_part(list(self._velocity_of), rate)

    @torch.no_grad()
    def step_part(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        """Move these weights of the model alone."""
        for weight in parameters:
            if weight.grad is not None:
                self._move(weight, weight.grad, self._velocity_of[weight], rate)

    def state_dict(self) -> dict[str, Tensor]:
        """The velocities by parameter name."""
        return dict(self._velocities)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Take over velocities from `state_dict`; KeyError when one is missing."""
        for name, velocity in self._velocities.items():
            velocity.copy_(state[name])

    def _move(self, weight: Tensor, gradient: Tensor, velocity: Tensor, rate: float) -> None:
        velocity.mul_(self._momentum).add_(gradient)
        if weight.ndim > 1:
            velocity.add_(weight, alpha=self._weight_decay)
        weight.add_(velocity, alpha=-rate)


def build(model: nn.Module, train: Train) -> SGD:
    """As `train.optimizer` says."""
    return SGD(model, train.optimizer.momentum, train.optimizer.weight_decay)
