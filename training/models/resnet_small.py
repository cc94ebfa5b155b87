"""The small residual networks (digits, images of 28 or 32 pixels), described for the login node: without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torusrun.training.models.layers import convolution, linear
from torusrun.training.recipe.facts import DataFacts, ModelFacts
from torusrun.training.recipe.key import Limits
from torusrun.training.recipe.reading import ConfigError, number

if TYPE_CHECKING:
    from torusrun.training.models.resnet import SmallResNet

DEFAULT_WIDTHS = (16, 32, 64)  # channels of each stage
MOST_WIDTHS, WIDEST, MOST_BLOCKS = 8, 4096, Limits(at_least=1, at_most=100)
STEMS = Limits(at_least=1, at_most=4)
OPTIONS = "train.model.options"


def build(
    *,
    classes: int,
    shape: tuple[int, ...],
    seed: int,
    widths: Sequence[float] = DEFAULT_WIDTHS,
    blocks: int = 1,
    stem: int = 2,
    zero_gamma: bool = False,
    channels_last: bool = True,
) -> SmallResNet:
    """The network with initial weights drawn from `seed`, for images of any size and number of channels.

    `blocks` are those of each width, `stem` is the stride of the first convolution. With `zero_gamma` the last norm of
    every block starts at 0. `channels_last` changes no weight.
    """
    from torusrun.training.models.resnet import SmallResNet

    facts(DataFacts(1, 1, classes, shape), widths=widths, blocks=blocks, stem=stem)
    return SmallResNet(
        classes, shape[0], checked_widths(widths), seed,
        zero_gamma=zero_gamma, blocks=blocks, stem=stem, channels_last=channels_last,
    )  # fmt: skip


def facts(
    data: DataFacts,
    *,
    widths: Sequence[float] = DEFAULT_WIDTHS,
    blocks: int = 1,
    stem: int = 2,
    zero_gamma: bool = False,
    channels_last: bool = True,
) -> ModelFacts:
    """A convolution, `blocks` blocks of two for each width (all but the first halve the image), and a linear layer."""
    if len(data.shape) != 3:
        raise ConfigError(
            f"train.model: resnet-small takes samples of shape (channels, height, width), not {data.shape}"
        )
    return small_facts(
        data,
        checked_widths(widths),
        blocks=_whole(f"{OPTIONS}.blocks", blocks, MOST_BLOCKS),
        stem=_whole(f"{OPTIONS}.stem", stem, STEMS),
    )


def small_facts(data: DataFacts, widths: tuple[int, ...], *, blocks: int, stem: int) -> ModelFacts:
    """The tensors of a SmallResNet."""
    channels, *image = data.shape
    image, inputs = [-(-side // stem) for side in image], widths[0]
    tensors, norms = [*convolution(channels, inputs, 3, image[0] * image[1])], [inputs]
    for stage, outputs in enumerate(widths):
        for block in range(blocks):
            halves = stage > 0 and block == 0
            image = [-(-side // 2) for side in image] if halves else image
            positions, projected = image[0] * image[1], halves or inputs != outputs
            tensors += [*convolution(inputs, outputs, 3, positions), *convolution(outputs, outputs, 3, positions)]
            tensors += convolution(inputs, outputs, 1, positions) if projected else ()
            norms += [outputs] * (3 if projected else 2)
            inputs = outputs
    return ModelFacts((*tensors, *linear(inputs, data.classes)), norms=tuple(norms))


def _whole(key: str, value: object, limits: Limits) -> int:
    if type(value) is not int:
        raise ConfigError(f"{key} must be a whole number, not {value!r}")
    return int(number(key, value, limits))


def checked_widths(widths: Sequence[float]) -> tuple[int, ...]:
    """The channels of each stage. Raises ConfigError."""
    listed = isinstance(widths, (list, tuple)) and 1 <= len(widths) <= MOST_WIDTHS
    if not listed or not all(type(width) is int and 1 <= width <= WIDEST for width in widths):
        raise ConfigError(
            f"{OPTIONS}.widths: must be a list of 1 to {MOST_WIDTHS} whole numbers from 1 to {WIDEST}, "
            f"the channels of each block, not {widths!r}"
        )
    return tuple(map(int, widths))


def build_digits(
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
    from torusrun.training.models.resnet import SmallResNet

    _check_digits(shape)
    return SmallResNet(classes, 1, checked_widths(widths), seed, zero_gamma=zero_gamma)


def facts_digits(data: DataFacts, *, zero_gamma: bool = True, widths: Sequence[float] = DEFAULT_WIDTHS) -> ModelFacts:
    """A convolution, a block of two convolutions per width (all but the first halve the image), and a linear layer."""
    _check_digits(data.shape)
    return small_facts(data, checked_widths(widths), blocks=1, stem=1)


def _check_digits(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] != 1:
        raise ConfigError(
            f"train.model: resnet-digits takes samples of shape (1, height, width), not {shape}; resnet18, resnet50 "
            "and resnet-small take images in colours"
        )
