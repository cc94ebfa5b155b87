"""Optimizers with a velocity for each parameter, and momentum correction.

If the rate is inside the momentum, the velocity changes with the rate, by the same factor. Source: Goyal et al. 2017,
remark 2 (from memory). With u the velocity of the rate outside the momentum and v = rate u,

    u = momentum u + g,  w = w - rate u     becomes     v = momentum (rate / last rate) v + rate g,  w = w - v

Both take the same steps while the rate is above 0. A rate of 0 makes v 0, but leaves u.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from torusrun.training.recipe.protocols import Optimizer

KEY = ".last_rates"  # in an optimizer's state, beside names of parameters, which never begin with a dot


class LastRates:
    """The last rate of each parameter. It is a part of the state, because a resumed run needs the same factors.

    Without `correction` every factor is 1, and nothing is kept.
    """

    def __init__(self, names: Mapping[nn.Parameter, str], correction: bool) -> None:
        self.names, self._correction = names, correction
        self._rates: dict[str, float] = {}

    def change(self, parameter: nn.Parameter, rate: float) -> float:
        """The factor of the parameter's velocity before a step at `rate`; `rate` then becomes its last rate."""
        if not self._correction:
            return 1.0
        name = self.names[parameter]
        last, self._rates[name] = self._rates.get(name, 0.0), rate
        return rate / last if last else 1.0  # at first, and after a rate of 0, the velocity is 0

    def changes(self, parameters: Sequence[nn.Parameter], rate: float) -> Iterator[tuple[float, list[nn.Parameter]]]:
        """The parameters by their factors: one group, unless some had no gradient in the step before."""
        if not self._correction and parameters:
            yield 1.0, list(parameters)
            return
        found: dict[float, list[nn.Parameter]] = {}
        for parameter in parameters:
            found.setdefault(self.change(parameter, rate), []).append(parameter)
        yield from found.items()

    def state_dict(self) -> dict[str, Any]:
        """A part of the optimizer's state; plain numbers, because a mean over ranks would round tensors."""
        return {KEY: dict(self._rates)} if self._correction else {}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Load the rates from an optimizer's state, if it has some."""
        if KEY in state:
            self._rates = dict(state[KEY])


class Momentum(Optimizer):
    """Keeps a velocity for each parameter of `model`; `step_part` of a subclass moves the weights."""

    def __init__(self, model: nn.Module, correction: bool) -> None:
        names = {weight: name for name, weight in model.named_parameters()}
        self._velocity_of = {weight: torch.zeros_like(weight) for weight in names}
        self._last_rates = LastRates(names, correction)

    def step(self, rate: float) -> None:
        """Move every weight along its `.grad`."""
        self.step_part(list(self._velocity_of), rate)

    def state_dict(self) -> dict[str, Any]:
        """The velocities by parameter name, and the last rates."""
        names = self._last_rates.names
        velocities = {names[weight]: velocity for weight, velocity in self._velocity_of.items()}
        return {**velocities, **self._last_rates.state_dict()}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Load a `state_dict`. Raises KeyError if a velocity is missing."""
        for weight, velocity in self._velocity_of.items():
            velocity.copy_(state[self._last_rates.names[weight]])
        self._last_rates.load_state_dict(state)
