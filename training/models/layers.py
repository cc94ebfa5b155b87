"""The layers of residual networks as tensors and multiply-adds, and how their weights begin: without torch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torusrun.training.recipe.facts import Tensor

Version = Literal["v1", "v1.5"]  # of a residual network: see resnet.py
Init = Literal["he-fan-out", "he-fan-in", "lecun-normal"]  # how the weights of convolutions are drawn
STEM_WIDTH = 64
WIDTHS = (64, 128, 256, 512)  # of a residual network's stages for photographs; all but the first halve the image


@dataclass(frozen=True)
class Start:
    """How a residual network's weights begin; the defaults are torchvision's.

    `last_std` is the standard deviation of the last layer's weights; 0 stands for torch's own uniform distribution.
    With `zero_bias` its bias is 0. With `zero_gamma` the last norm of every block is 0, so that the block is an
    identity at first (Goyal et al. 2017, section 5.1).
    """

    init: Init = "he-fan-out"
    last_std: float = 0.0
    zero_bias: bool = False
    zero_gamma: bool = False


def convolution(inputs: int, outputs: int, side: int, positions: int) -> tuple[Tensor, ...]:
    """The weights of a `side` x `side` convolution at `positions`, then scale and shift of its batch norm."""
    parameters = inputs * outputs * side * side
    return Tensor(parameters, parameters * positions), Tensor(outputs, 0), Tensor(outputs, 0)


def linear(inputs: int, outputs: int) -> tuple[Tensor, ...]:
    """The weights and the bias of a fully connected layer."""
    return Tensor(inputs * outputs, inputs * outputs), Tensor(outputs, 0)
