"""SGD with momentum, in the forms that the recipes use."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torusrun.training.optim.momentum import Momentum
from torusrun.training.progress import Moment
from torusrun.training.recipe.train import Train


class SGD(Momentum):
    """With u = g + weight_decay w, the rate outside the momentum, as in torch, or inside, as in Caffe and MXNet:

        outside    v = momentum v + u,       w = w - rate v  (Nesterov: w = w - rate (momentum v + u))
        inside     v = momentum v + rate u,  w = w - v       (Nesterov: w = w - momentum v - rate u)

    With `momentum_correction` "inside" takes the steps of "outside": see momentum.py. Vectors (biases, batch norm)
    get no decay (Goyal et al. 2017, section 5.3) unless `decay_vectors`.

    It moves one tensor after the other, always in the same order, so equal gradients give equal bits. torch.optim.SGD
    computes the same, but it imports the compiler: a second of start-up for every rank.
    """

    def __init__(
        self,
        model: nn.Module,
        momentum: float,
        weight_decay: float,
        *,
        nesterov: bool = False,
        decay_vectors: bool = False,
        lr_in_momentum: bool = False,
        momentum_correction: bool = False,
    ) -> None:
        super().__init__(model, momentum_correction and lr_in_momentum)
        self._momentum, self._weight_decay = momentum, weight_decay
        self._nesterov, self._inside = nesterov, lr_in_momentum
        self._least_decayed = 0 if decay_vectors else 2  # dimensions

    def before_step(self, moment: Moment, weight_decay: float) -> None:
        """Set the decay of the next steps."""
        self._weight_decay = weight_decay

    @torch.no_grad()
    def step_part(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        """Move only these weights of the model."""
        for weight in parameters:
            if weight.grad is not None:
                kept = self._momentum * self._last_rates.change(weight, rate)
                self._move(weight, weight.grad, self._velocity_of[weight], rate, kept)

    def _move(self, weight: Tensor, gradient: Tensor, velocity: Tensor, rate: float, kept: float) -> None:
        added, taken = (rate, 1.0) if self._inside else (1.0, rate)
        decay = self._weight_decay if weight.ndim >= self._least_decayed else 0.0
        velocity.mul_(kept).add_(gradient, alpha=added)
        if decay:
            velocity.add_(weight, alpha=added * decay)
        if self._nesterov:
            weight.mul_(1 - rate * decay).add_(gradient, alpha=-rate)
            taken *= self._momentum
        weight.add_(velocity, alpha=-taken)


def build(model: nn.Module, train: Train) -> SGD:
    """The optimizer of `train.optimizer`."""
    keys = train.optimizer
    return SGD(
        model,
        keys.momentum,
        keys.weight_decay,
        nesterov=keys.nesterov,
        decay_vectors=keys.decay_vectors,
        lr_in_momentum=keys.lr_in_momentum,
        momentum_correction=keys.momentum_correction,
    )
