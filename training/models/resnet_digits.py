"""The small residual network for the digits, as the login node knows it: without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from training.models.resnet import SmallResNet

WIDTHS = (16, 32, 64)


def build(*, classes: int, shape: tuple[int, ...], seed: int) -> SmallResNet:
    """The network with the initial weights that `seed` stands for, for images of one channel."""
    from training.models.resnet import small_resnet
    from training.recipe.reading import ConfigError

    if len(shape) != 3 or shape[0] != 1:
        raise ConfigError(f"train.model: resnet-digits takes samples of shape (1, height, width), not {shape}")
    return small_resnet(classes, seed)
