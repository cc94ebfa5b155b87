"""The tensors of a network as backward reaches them: bytes, and when each is ready."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import accumulate


@dataclass(frozen=True)
class Tensor:
    """One parameter tensor, and the multiplications that its layer's backward takes per image."""

    parameters: int
    work: float


STAGES = ((64, 3, 56), (128, 4, 28), (256, 6, 14), (512, 3, 7))  # width, blocks, pixels (He et al. 2015, verified)


@lru_cache
def resnet50() -> tuple[Tensor, ...]:
    """161 tensors, 25,557,032 parameters, in backward order: fully connected first, conv1 last."""
    return tuple(reversed(list(_forward())))


def ready_s(tensors: tuple[Tensor, ...], backward_s: float) -> list[float]:
    """Seconds after backward began; time is spread like multiplications (derived: batch norms take none here)."""
    work = sum(tensor.work for tensor in tensors)
    return [done / work * backward_s for done in accumulate(tensor.work for tensor in tensors)]


def _forward() -> Iterator[Tensor]:
    yield from _convolution(3, 64, 7, 112)
    inputs = 64
    for width, blocks, pixels in STAGES:
        for block in range(blocks):
            wide = pixels * 2 if block == 0 and width > 64 else pixels  # v1.5: the 3 x 3 has the stride
            yield from _convolution(inputs, width, 1, wide)
            yield from _convolution(width, width, 3, pixels)
            yield from _convolution(width, width * 4, 1, pixels)
            if block == 0:
                yield from _convolution(inputs, width * 4, 1, pixels)
            inputs = width * 4
    yield Tensor(inputs * 1000, inputs * 1000)
    yield Tensor(1000, 0)


def _convolution(inputs: int, outputs: int, side: int, pixels: int) -> Iterator[Tensor]:
    """The convolution's weights, then scale and shift of the batch norm behind it."""
    parameters = inputs * outputs * side * side
    yield Tensor(parameters, parameters * pixels * pixels)
    yield Tensor(outputs, 0)
    yield Tensor(outputs, 0)


@lru_cache
def small_resnet() -> tuple[Tensor, ...]:
    """The demo's network (training/models), in backward order."""
    layers = list(_convolution(1, 16, 3, 8))
    inputs = 16
    for width, pixels in ((16, 8), (32, 4), (64, 2)):
        layers += [*_convolution(inputs, width, 3, pixels), *_convolution(width, width, 3, pixels)]
        layers += _convolution(inputs, width, 1, pixels) if inputs != width else ()
        inputs = width
    return tuple(reversed([*layers, Tensor(inputs * 10, inputs * 10), Tensor(10, 0)]))


@lru_cache
def small_resnet_statistics() -> Tensor:
    """What travels beside the demo's gradients: mean and variance of every batch norm, the loss, and a flag."""
    norms = [tensor for tensor in small_resnet()[2:] if not tensor.work]  # all but the last layer's weights and bias
    return Tensor(sum(tensor.parameters for tensor in norms) + 2, 0)
