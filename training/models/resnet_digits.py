"""The small residual network for the digits, described for the login node: without torch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from torusrun.training.models.resnet_small import DEFAULT_WIDTHS, checked_widths, small_facts
from torusrun.training.recipe.facts import DataFacts, ModelFacts
from torusrun.training.recipe.reading import ConfigError

if TYPE_CHECKING:
    from torusrun.training.models.small_resnet import SmallResNet


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
    from torusrun.training.models.small_resnet import SmallResNet

    _check(shape)
    return SmallResNet(classes, 1, checked_widths(widths), seed, zero_gamma=zero_gamma)


def facts(data: DataFacts, *, zero_gamma: bool = True, widths: Sequence[float] = DEFAULT_WIDTHS) -> ModelFacts:
    """A convolution, a block of two convolutions per width (all but the first halve the image), and a linear layer."""
    _check(data.shape)
    return small_facts(data, checked_widths(widths), blocks=1, stem=1)


def _check(shape: tuple[int, ...]) -> None:
    if len(shape) != 3 or shape[0] != 1:
        raise ConfigError(
            f"train.model: resnet-digits takes samples of shape (1, height, width), not {shape}; resnet18, resnet50 "
            "and resnet-small take images in colours"
        )
