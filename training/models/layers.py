"""The tensors of layers that models are made of."""

from __future__ import annotations

from training.recipe.facts import Tensor


def convolution(inputs: int, outputs: int, side: int, pixels: int) -> tuple[Tensor, ...]:
    """The weights of a `side` x `side` convolution to `pixels` x `pixels`, then scale and shift of its batch norm."""
    parameters = inputs * outputs * side * side
    return Tensor(parameters, parameters * pixels * pixels), Tensor(outputs, 0), Tensor(outputs, 0)


def linear(inputs: int, outputs: int) -> tuple[Tensor, ...]:
    """The weights and the bias of a fully connected layer."""
    return Tensor(inputs * outputs, inputs * outputs), Tensor(outputs, 0)
