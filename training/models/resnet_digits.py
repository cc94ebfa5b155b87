"""The small residual network for the digits, described for the login node: without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from training.models.layers import convolution, linear
from training.recipe.facts import DataFacts, ModelFacts
from training.recipe.reading import ConfigError

if TYPE_CHECKING:
    from training.models.small_resnet import SmallResNet

DEFAULT_WIDTHS = (16, 32, 64)  # channels of each block
MOST_BLOCKS, WIDEST = 8, 4096


def build(
    *,
    classes: int,
    shape: tuple[int, ...],
    seed: int,
    zero_gamma: bool = True,
    widths: Sequence[float] = DEFAULT_WIDTHS,
) -> SmallResNet:
    """The network with initial weights drawn from `seed`, for images of one channel.

    With `zero_gamma` the last norm of every block starts at 0.
    """
    from training.models.small_resnet import SmallResNet

    _check(shape)
    return SmallResNet(classes, _checked(widths), seed, zero_gamma)


def _check(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] != 1:
        raise ConfigError(
            f"train.model: resnet-digits takes samples of shape (1, height, width), not {shape}; resnet18 and resnet50 "
            "take images in colours"
        )


def facts(data: DataFacts, *, zero_gamma: bool = True, widths: Sequence[float] = DEFAULT_WIDTHS) -> ModelFacts:
    """A convolution, a block of two convolutions per width (all but the first halve the image), and a linear layer."""
    each = _checked(widths)
    _check(data.shape)
    (height, width), inputs = data.shape[-2:], each[0]
    tensors = [*convolution(1, inputs, 3, height * width)]
    norms = [inputs]
    for number, outputs in enumerate(each):
        projected = number > 0
        if projected:
            height, width = -(-height // 2), -(-width // 2)
        positions = height * width
        tensors += [*convolution(inputs, outputs, 3, positions), *convolution(outputs, outputs, 3, positions)]
        tensors += convolution(inputs, outputs, 1, positions) if projected else ()
        norms += [outputs] * (3 if projected else 2)
        inputs = outputs
    return ModelFacts((*tensors, *linear(inputs, data.classes)), norms=tuple(norms))


def _checked(widths: Sequence[float]) -> tuple[int, ...]:
    listed = isinstance(widths, (list, tuple)) and 1 <= len(widths) <= MOST_BLOCKS
    if not listed or not all(type(width) is int and 1 <= width <= WIDEST for width in widths):
        raise ConfigError(
            f"train.model.options.widths: must be a list of 1 to {MOST_BLOCKS} whole numbers from 1 to {WIDEST}, "
            f"the channels of each block, not {widths!r}"
        )
    return tuple(map(int, widths))
