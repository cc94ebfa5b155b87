"""SGD with momentum, in the forms that the recipes use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from torusrun.training.progress import Moment
from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.recipe.train import Train

KEY = ".last_rate"  # in an optimizer's state, beside names of parameters, which never begin with a dot


class Momentum(Optimizer):
    """Keeps a velocity for each parameter of `model`; `step_part` of a subclass moves the weights.

    With `correction` the velocity changes with the rate, by the same factor, for a rate inside the momentum. Source:
    Goyal et al. 2017, remark 2 (from memory). With u the velocity of the rate outside and v = rate u,

        u = momentum u + g,  w = w - rate u     becomes     v = momentum (rate / last rate) v + rate g,  w = w - v

    Both take the same steps while the rate is above 0. A rate of 0 makes v 0, but leaves u.
    """

    def __init__(self, model: nn.Module, correction: bool) -> None:
        self._names = {weight: name for name, weight in model.named_parameters()}
        self._velocity_of = {weight: torch.zeros_like(weight) for weight in self._names}
        self._correction = correction
        self._rate = self._last_rate = 0.0  # of this step, and of the last whole step: a resumed run needs it

    def step(self, rate: float) -> None:
        """Move every weight along its `.grad`."""
        self.step_part(list(self._velocity_of), rate)
        self.finish()

    def finish(self) -> None:
        """All parts of a step are taken; a second call changes nothing."""
        self._last_rate = self._rate

    def state_dict(self) -> dict[str, Any]:
        """The velocities by parameter name, and the last rate."""
        velocities = {self._names[weight]: velocity for weight, velocity in self._velocity_of.items()}
        return {**velocities, **({KEY: self._last_rate} if self._correction else {})}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict`. Raises KeyError if a velocity is missing."""
        for weight, velocity in self._velocity_of.items():
            velocity.copy_(state[self._names[weight]])
        self._rate = self._last_rate = state.get(KEY, 0.0)

    def _change(self, rate: float) -> float:
        """The factor of all velocities in a step at `rate`."""
        self._rate = rate
        # At first, and after a rate of 0, the velocity is 0.
        return rate / self._last_rate if self._correction and self._last_rate else 1.0


class SGD(Momentum):
    """With u = g + weight_decay w, the rate outside the momentum, as in torch, or inside, as in Caffe and MXNet:

        outside    v = momentum v + u,       w = w - rate v  (Nesterov: w = w - rate (momentum v + u))
        inside     v = momentum v + rate u,  w = w - v       (Nesterov: w = w - momentum v - rate u)

    With `momentum_correction` "inside" takes the steps of "outside": see above. Vectors (biases, batch norm)
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
        self._weight_decay = weight_decay

    @torch.no_grad()
    def step_part(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        kept = self._momentum * self._change(rate)
        for weight in parameters:
            if weight.grad is not None:
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
        model, keys.momentum, keys.weight_decay, nesterov=keys.nesterov, decay_vectors=keys.decay_vectors,
        lr_in_momentum=keys.lr_in_momentum, momentum_correction=keys.momentum_correction,
    )  # fmt: skip
