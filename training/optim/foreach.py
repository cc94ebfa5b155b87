"""LARS by torch's operations on lists of tensors: used if neither Triton nor a C++ compiler is available.

On a GPU each operation is one launch for many tensors. On a CPU each would stream the whole model through the cache,
so a list there has one tensor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from torusrun.training.optim.kernel import Piece, Rule


class Foreach:
    """LARS for every device and dtype; nothing waits for the device."""

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
        ratio_of = self.rule.ratio(weight_norm, gradient_norm, rate).unbind()
        ratios = {index: ratio_of[index] for index, piece in enumerate(pieces) if piece.scaled}
        updates = self._decayed(pieces)
        if self.rule.keys.ratio_in_momentum:
            updates = _times(updates, ratios)
        added, taken = self.rule.rates(rate)
        momentum = self.rule.momentum
        torch._foreach_mul_(velocities, momentum * change)
        torch._foreach_add_(velocities, updates, alpha=added)
        if not self.rule.keys.ratio_in_momentum:
            velocities, updates = _times(velocities, ratios), _times(updates, ratios)
        if self.rule.keys.nesterov:
            torch._foreach_add_(weights, velocities, alpha=-taken * momentum)
            torch._foreach_add_(weights, updates, alpha=-rate)
        else:
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
