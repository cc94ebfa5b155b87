"""The interface of the kernels that move weights by LARS. lars.py has the formulas."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import torch
from torch import Tensor

from torusrun.training.recipe.train import LarsKeys


class Unavailable(RuntimeError):
    """A kernel cannot be used here; the message says why."""


class Piece(NamedTuple):
    """A tensor, its gradient and its velocity: all with one shape, layout, dtype and device.

    A piece that is not `scaled` gets neither ratio nor decay.
    """

    weight: Tensor
    gradient: Tensor
    velocity: Tensor
    scaled: bool


@dataclass(frozen=True)
class Rule:
    """The constants of the formulas."""

    momentum: float
    weight_decay: float
    keys: LarsKeys

    @property
    def ratio_decay(self) -> float:
        """The decay in the ratio's denominator."""
        return self.weight_decay if self.keys.ratio_decay is None else self.keys.ratio_decay

    def decaying(self, weight_decay: float) -> Rule:
        """The same with another decay."""
        return self if weight_decay == self.weight_decay else replace(self, weight_decay=weight_decay)

    def rates(self, rate: float) -> tuple[float, float]:
        """Two factors: of the update as it enters the velocity, and of the velocity as it moves the weights."""
        return (rate, 1.0) if self.keys.lr_in_momentum else (1.0, rate)

    def ratio(self, weight_norm: Tensor, gradient_norm: Tensor, rate: float) -> Tensor:
        """The ratio of every pair of norms; nothing waits for the device."""
        divisor = gradient_norm + self.ratio_decay * weight_norm + self.keys.eps
        ratio = self.keys.trust * weight_norm / divisor
        if self.keys.clip:
            ratio = (ratio / rate).clamp(max=1.0)
        return torch.where((weight_norm > 0) & (gradient_norm > 0), ratio, 1.0)


class Kernel(Protocol):
    """One implementation of LARS. The same pieces give the same bits on every rank that uses the same kernel.

    Its `rule` may be replaced between two steps.
    """

    rule: Rule

    def move(self, pieces: Sequence[Piece], rate: float, change: float = 1.0) -> None:
        """Change weights and velocities by one step. Velocities are multiplied by `change` first: see momentum.py."""


def is_dense(tensor: Tensor) -> bool:
    """Whether its numbers lie side by side in memory, without a gap."""
    return tensor.is_contiguous() or (tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last))
