"""The tensors of ResNet-50 in the order of backward, and when the gradient of each is ready."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import accumulate

from training.models.layers import convolution, linear
from training.recipe.facts import Tensor

STAGES = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))  # width, blocks, pixels (He et al. 2015, verified)


@lru_cache
def resnet50() -> tuple[Tensor, ...]:
    """161 tensors with 25,557,032 parameters in backward order: the fully connected layer first, conv1 last."""
    return tuple(reversed(list(_forward())))


def ready_s(tensors: tuple[Tensor, ...], backward_s: float) -> list[float]:
    """Seconds from the start of backward until each gradient is ready.

    A tensor takes a share of the time by its multiplications (derived: batch norms take none here).
    """
    work = sum(tensor.work for tensor in tensors)
    return [done / work * backward_s for done in accumulate(tensor.work for tensor in tensors)]


def _forward() -> Iterator[Tensor]:
    yield from convolution(3, 64, 7, 112)
    inputs = 64
    for width, blocks, pixels in STAGES:
        for block in range(blocks):
            wide = pixels * 2 if block == 0 and width > 64 else pixels  # v1.5: the 3 x 3 has the stride
            yield from convolution(inputs, width, 1, wide)
            yield from convolution(width, width, 3, pixels)
            yield from convolution(width, width * 4, 1, pixels)
            if block == 0:
                yield from convolution(inputs, width * 4, 1, pixels)
            inputs = width * 4
    yield from linear(inputs, 1000)
