"""The exponential moving average of a model's state, as torch.optim.swa_utils.AveragedModel has it with its buffers.

average = state after the first step, then  average = share average + (1 - share) state
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor, nn


class WeightAverage:
    """The average of the weights and buffers of `model`; `share` is what each step keeps of it.

    All ranks hold the same state after a step, so each computes the same average. Whole numbers are the newest ones.
    """

    def __init__(self, model: nn.Module, share: float) -> None:
        self._model, self._share = model, share
        self.state: dict[str, Tensor] = {}  # empty before the first step

    @torch.no_grad()
    def step(self) -> None:
        """Take in the state after a step."""
        now = self._model.state_dict()
        if not self.state:
            self.state = {name: tensor.detach().clone() for name, tensor in now.items()}
            return
        floating = [name for name, tensor in now.items() if tensor.is_floating_point()]
        held, new = [self.state[name] for name in floating], [now[name] for name in floating]
        torch._foreach_lerp_(held, new, 1 - self._share)
        for name in now.keys() - floating:
            self.state[name].copy_(now[name])

    def load(self, state: Mapping[str, Tensor]) -> None:
        """Continue from a `state`."""
        own = self._model.state_dict()
        self.state = {name: tensor.to(own[name].device, copy=True) for name, tensor in state.items()}
