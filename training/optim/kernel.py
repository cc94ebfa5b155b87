"""The interface of the kernels that move weights by LARS, and a kernel of torch's operations; formulas: lars.py."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
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

    def rates(self, rate: float) -> tuple[float, float]:
        """Two factors: of the update as it enters the velocity, and of the velocity as it moves the weights."""
        return (rate, 1.0) if self.keys.lr_in_momentum else (1.0, rate)

    def ratio(self, weight_norm: Tensor, gradient_norm: Tensor) -> Tensor:
        """The ratio of every pair of norms; nothing waits for the device."""
        divisor = gradient_norm + self.ratio_decay * weight_norm + self.keys.eps
        ratio = self.keys.trust * weight_norm / divisor
        return torch.where((weight_norm > 0) & (gradient_norm > 0), ratio, 1.0)


class Kernel(Protocol):
    """One implementation of LARS. The same pieces give the same bits on every rank that uses the same kernel.

    Its `rule` may be replaced between two steps.
    """

    rule: Rule

    def move(self, pieces: Sequence[Piece], rate: float, change: float = 1.0) -> None:
        """Change weights and velocities by one step. Velocities are multiplied by `change` first: see sgd.py."""


def is_dense(tensor: Tensor) -> bool:
    """Whether its numbers lie side by side in memory, without a gap."""
    return tensor.is_contiguous() or (tensor.ndim == 4 and tensor.is_contiguous(memory_format=torch.channels_last))


class Foreach:
    """LARS for every device and dtype; nothing waits for the device.

    On a GPU each operation is one launch for many tensors. On a CPU each would stream the whole model through the
    cache, so a CPU's lists have one tensor.
    """

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def move(self, pieces: Sequence[Piece], rate: float, change: float = 1.0) -> None:
        at_once = len(pieces) if pieces[0].weight.is_cuda else 1
        for first in range(0, len(pieces), at_once):
            self._move(pieces[first : first + at_once], rate, change)

    def _move(self, pieces: Sequence[Piece], rate: float, change: float) -> None:
        norms = torch._foreach_norm([tensor for piece in pieces for tensor in (piece.weight, piece.gradient)])
        squares = torch.stack(norms).double().square().view(-1, 2)
        weights, velocities = [piece.weight for piece in pieces], [piece.velocity for piece in pieces]
        weight_norm, gradient_norm = squares.sqrt().to(weights[0].dtype).unbind(1)
        ratio_of = self.rule.ratio(weight_norm, gradient_norm).unbind()
        ratios = {index: ratio_of[index] for index, piece in enumerate(pieces) if piece.scaled}
        updates = self._decayed(pieces)
        if self.rule.keys.ratio_in_momentum:
            updates = _times(updates, ratios)
        added, taken = self.rule.rates(rate)
        torch._foreach_mul_(velocities, self.rule.momentum * change)
        torch._foreach_add_(velocities, updates, alpha=added)
        if not self.rule.keys.ratio_in_momentum:
            velocities = _times(velocities, ratios)
        torch._foreach_add_(weights, velocities, alpha=-taken)

    def _decayed(self, pieces: Sequence[Piece]) -> list[Tensor]:
        """The gradients, those of scaled pieces with the decay."""
        scaled = [piece for piece in pieces if piece.scaled]
        gradients, weights = [piece.gradient for piece in scaled], [piece.weight for piece in scaled]
        decayed = iter(torch._foreach_add(gradients, weights, alpha=self.rule.weight_decay) if scaled else ())
        return [next(decayed) if piece.scaled else piece.gradient for piece in pieces]


def _times(tensors: Sequence[Tensor], ratios: Mapping[int, Tensor]) -> list[Tensor]:
    """The tensors, those with these indices times their ratio."""
    products = iter(torch._foreach_mul([tensors[index] for index in ratios], list(ratios.values())) if ratios else ())
    return [next(products) if index in ratios else tensor for index, tensor in enumerate(tensors)]
