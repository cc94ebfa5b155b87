"""The tensors of the models' layers, and the shape of residual networks."""

from __future__ import annotations

from typing import Literal

from training.recipe.facts import Tensor

Version = Literal["v1", "v1.5"]  # of a residual network: see resnet.py
STEM_WIDTH = 64
WIDTHS = (64, 128, 256, 512)  # of a residual network's stages for photographs; all but the first halve the image


def convolution(inputs: int, outputs: int, side: int, positions: int) -> tuple[Tensor, ...]:
    """The weights of a `side` x `side` convolution at `positions`, then scale and shift of its batch norm."""
    parameters = inputs * outputs * side * side
    return Tensor(parameters, parameters * positions), Tensor(outputs, 0), Tensor(outputs, 0)


def linear(inputs: int, outputs: int) -> tuple[Tensor, ...]:
    """The weights and the bias of a fully connected layer."""
    return Tensor(inputs * outputs, inputs * outputs), Tensor(outputs, 0)
