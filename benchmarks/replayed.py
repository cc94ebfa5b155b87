"""A backward pass with given times: sleeps in place of arithmetic, real gradients and hooks."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn


class Replayed(nn.Module):
    """A chain of parameters of `sizes`, the first to be ready first; parameter i is ready at `ready_s[i]`.

    Times count from the first gradient's turn, and do not drift: after a delay the pass sleeps less.
    """

    def __init__(self, sizes: Sequence[int], ready_s: Sequence[float]) -> None:
        super().__init__()
        self.chain = nn.ParameterList([nn.Parameter(torch.zeros(size)) for size in reversed(sizes)])
        self._ready_s = list(reversed(ready_s))
        self.start = [0.0]

    def forward(self) -> Tensor:
        value = torch.zeros(1, requires_grad=True)
        for parameter, ready_s in zip(self.chain, self._ready_s, strict=True):
            value = Link.apply(value, parameter, ready_s, self.start)
        total: Tensor = Begin.apply(value, self.start)
        return total.sum()


class Begin(torch.autograd.Function):
    """Records the begin of backward."""

    @staticmethod
    def forward(context: Any, value: Tensor, start: list[float]) -> Tensor:
        context.start = start
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, None]:
        context.start[0] = time.perf_counter()
        return gradient, None


class Link(torch.autograd.Function):
    """One parameter."""

    @staticmethod
    def forward(context: Any, value: Tensor, parameter: Tensor, ready_s: float, start: list[float]) -> Tensor:
        context.ready_s, context.start, context.gradient = ready_s, start, torch.ones_like(parameter)
        return value.clone()

    @staticmethod
    def backward(context: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, None]:
        time.sleep(max(0.0, context.start[0] + context.ready_s - time.perf_counter()))
        return gradient, context.gradient, None, None
