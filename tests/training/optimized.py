"""A small layer in float64, and steps of it with gradients that are functions of the step's number."""

from __future__ import annotations

import torch
from torch import nn

from torusrun.training.progress import Moment
from torusrun.training.recipe.protocols import Optimizer

MOMENTUM, DECAY = 0.9, 0.01


def model() -> nn.Linear:
    torch.manual_seed(3)
    return nn.Linear(4, 3).double()


def gradients(step: int) -> list[torch.Tensor]:
    draw = torch.Generator().manual_seed(step)
    return [torch.randn(p.shape, generator=draw, dtype=torch.float64) for p in model().parameters()]


def take(net: nn.Module, optimizer: Optimizer, step: int, rate: float) -> None:
    for parameter, gradient in zip(net.parameters(), gradients(step), strict=True):
        parameter.grad = gradient
    optimizer.step(rate)


def take_at(net: nn.Module, optimizer: Optimizer, step: int, now: tuple[float, float, float]) -> None:
    """A step at these epochs, with this rate and this decay."""
    epochs, rate, decay = now
    optimizer.before_step(Moment(0.0, 0.0, epochs + 3, epochs), decay)
    take(net, optimizer, step, rate)
