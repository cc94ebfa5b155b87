"""The small residual network for the digits, as the login node knows it: without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training.models.layers import convolution, linear
from training.recipe.facts import DataFacts, ModelFacts

if TYPE_CHECKING:
    from training.models.resnet import SmallResNet

WIDTHS = (16, 32, 64)  # channels of each block


def build(*, classes: int, shape: tuple[int, ...], seed: int) -> SmallResNet:
    """The network with the initial weights that `seed` stands for, for images of one channel."""
    from training.models.resnet import small_resnet
    from training.recipe.reading import ConfigError

    if len(shape) != 3 or shape[0] != 1:
        raise ConfigError(f"train.model: resnet-digits takes samples of shape (1, height, width), not {shape}")
    return small_resnet(classes, WIDTHS, seed)


def facts(data: DataFacts) -> ModelFacts:
    """A convolution, one block of two convolutions per width, and a linear layer; all but the first block halve."""
    pixels, inputs = data.shape[-1], WIDTHS[0]
    tensors = [*convolution(1, inputs, 3, pixels)]
    normalized = inputs
    for width in WIDTHS:
        projected = width != inputs
        pixels = -(-pixels // 2) if projected else pixels
        tensors += [*convolution(inputs, width, 3, pixels), *convolution(width, width, 3, pixels)]
        tensors += convolution(inputs, width, 1, pixels) if projected else ()
        normalized += (3 if projected else 2) * width
        inputs = width
    return ModelFacts((*tensors, *linear(inputs, data.classes)), statistics=2 * normalized)
