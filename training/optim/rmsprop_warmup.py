"""RMSprop warm-up: RMSprop at first, SGD with momentum later, and a mix between (Akiba et al. 2017, arXiv 1711.04325).

With u = g + weight_decay w, and a(e) the share of SGD at epoch e:

    m = mu2 m + (1 - mu2) u^2
    D = momentum D - (a + b / (sqrt(m) + eps)) u,    b = (1 - a) rms_rate / rate
    w = w + rate D

    a(e) = 1/2 exp(2 (e - centre) / period)      for e < centre
           1/2 + (e - centre) / period           for e < centre + period / 2
           1                                     after

Marks. The paper was not read; secondary values come from notes on it and from three programs for Chainer.

    rules for m, D and w    secondary: the notes and two programs; in the third b's part stays out of D
    a, first and last line  secondary: the notes and two programs; the third has no 1/2
    a, second line          derived: notes and programs have 2 (e - centre) / period, which reaches 1.5, falls back to
                            1 and makes b negative. With 1 in place of 2 neither a nor its slope jumps, as in the
                            exponential linear unit that the paper names (from memory)
    b, and rms_rate 3e-4    secondary: the three programs
    centre 10, period 5     secondary: the notes and the programs
    mu2 0.99, eps 1e-8      secondary: the programs
    u                       from memory: Chainer adds the decay to the gradient before the rule
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp
from typing import Any

import torch
from torch import Tensor, nn

from torusrun.training.progress import Moment
from torusrun.training.recipe.key import Limits
from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.recipe.reading import number
from torusrun.training.recipe.train import Train

OPTIONS = "train.optimizer.options"


def sgd_share(epochs: float, centre: float, period: float) -> float:
    """a(e): SGD's share of a step, from almost 0 to 1."""
    if epochs < centre:
        return 0.5 * exp(2 * (epochs - centre) / period)
    return min(1.0, 0.5 + (epochs - centre) / period)


class RMSpropWarmup(Optimizer):
    """The formulas above, applied to one tensor after the other. Before the first `before_step` the epoch is 0."""

    def __init__(
        self,
        model: nn.Module,
        train: Train,
        *,
        mu2: float = 0.99,
        eps: float = 1e-8,
        centre: float = 10.0,
        period: float = 5.0,
        rms_rate: float = 3e-4,
    ) -> None:
        """`centre` and `period` are in epochs. Raises ConfigError if an option is out of its limits."""
        number(f"{OPTIONS}.mu2", mu2, Limits(at_least=0, at_most=0.999999))
        for name, value in (("eps", eps), ("period", period)):
            number(f"{OPTIONS}.{name}", value, Limits(above=0, at_most=1e6))
        for name, value in (("centre", centre), ("rms_rate", rms_rate)):
            number(f"{OPTIONS}.{name}", value, Limits(at_least=0, at_most=1e6))
        self._weights = dict(model.named_parameters())
        self._velocities = {name: torch.zeros_like(weight) for name, weight in self._weights.items()}
        self._squares = {name: torch.zeros_like(weight) for name, weight in self._weights.items()}
        self._name_of = {weight: name for name, weight in self._weights.items()}
        self._momentum, self._weight_decay = train.optimizer.momentum, train.optimizer.weight_decay
        self._least_decayed = 0 if train.optimizer.decay_vectors else 2  # dimensions
        self._mu2, self._eps, self._centre, self._period, self._rms_rate = mu2, eps, centre, period, rms_rate
        self._share = sgd_share(0.0, centre, period)

    def before_step(self, moment: Moment, weight_decay: float) -> None:
        """Set SGD's share from the beginning of the step, and the decay of the next steps."""
        self._share = sgd_share(moment.begins, self._centre, self._period)
        self._weight_decay = weight_decay

    def step(self, rate: float) -> None:
        self.step_part(list(self._name_of), rate)

    @torch.no_grad()
    def step_part(self, parameters: Sequence[nn.Parameter], rate: float) -> None:
        for weight in parameters:
            if weight.grad is not None:
                name = self._name_of[weight]
                self._move(weight, weight.grad, self._velocities[name], self._squares[name], rate)

    def state_dict(self) -> dict[str, Any]:
        """D and m by parameter name."""
        return {"velocities": dict(self._velocities), "squares": dict(self._squares)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict`. Raises KeyError if a tensor is missing."""
        for name in self._weights:
            self._velocities[name].copy_(state["velocities"][name])
            self._squares[name].copy_(state["squares"][name])

    def _move(self, weight: Tensor, gradient: Tensor, velocity: Tensor, square: Tensor, rate: float) -> None:
        if self._weight_decay and weight.ndim >= self._least_decayed:
            gradient = gradient.add(weight, alpha=self._weight_decay)
        square.mul_(self._mu2).addcmul_(gradient, gradient, value=1 - self._mu2)
        velocity.mul_(self._momentum).add_(gradient, alpha=-self._share)
        if self._share < 1 and rate:  # at a rate of 0 nothing moves, and b has no value
            b = (1 - self._share) * self._rms_rate / rate
            velocity.addcdiv_(gradient, square.sqrt().add_(self._eps), value=-b)
        weight.add_(velocity, alpha=rate)


build = RMSpropWarmup
