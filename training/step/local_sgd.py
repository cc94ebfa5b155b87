"""Local SGD: every rank takes steps by its own gradients, and now and then the ranks average their states.

Source: Stich 2019, arXiv 1805.09767, algorithm 1 (from memory). Velocities and running statistics are averaged with
the weights, so that all ranks hold the same state whenever a checkpoint can be written.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from torusrun.training.collectives.interface import AllReduce
from torusrun.training.recipe.protocols import Optimizer
from torusrun.training.sync.arena import Arena


class StateAverage:
    """The mean over the ranks of all fp32 numbers in the model and the optimizer."""

    def __init__(self, model: nn.Module, optimizer: Optimizer, all_reduce: AllReduce) -> None:
        self._model, self._optimizer, self._all_reduce = model, optimizer, all_reduce
        self._arena: Arena | None = None

    def facts(self) -> dict[str, object]:
        """The facts for a trace: no gradients, and the length of the vector once it exists."""
        vector = self._arena.vector if self._arena else torch.empty(0)
        return {"gradients": 0, "bytes": vector.nbytes, "all_reduce": self._all_reduce.name(vector)}

    @torch.no_grad()
    def take(self, numbers: Tensor) -> Tensor:
        """Replace the state by its mean over the ranks; returns the mean of `numbers` [N]. All ranks call it."""
        state = self._optimizer.state_dict()
        held = [*_floats(self._model.state_dict()), *_floats(state)]
        if self._arena is None:
            length = sum(tensor.numel() for tensor in held) + numbers.numel()
            self._arena = Arena([*held, numbers], self._all_reduce.padded(length), torch.float32)
        for view, tensor in zip(self._arena.views, [*held, numbers], strict=True):
            view.copy_(tensor)
        self._all_reduce.mean_(self._arena.vector)
        for view, tensor in zip(self._arena.views, held, strict=False):
            tensor.copy_(view)
        self._optimizer.load_state_dict(state)
        return self._arena.views[-1]


def _floats(state: Any) -> Iterator[Tensor]:
    """The tensors of floating point within nested dicts and lists, in order."""
    if isinstance(state, Tensor):
        if state.is_floating_point():
            yield state
    elif isinstance(state, (dict, list, tuple)):
        for value in state.values() if isinstance(state, dict) else state:
            yield from _floats(value)
