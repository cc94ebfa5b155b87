"""LARS one tensor after the other: the reference with which every implementation is compared."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor
from torch.linalg import vector_norm

from torusrun.training.optim.kernel import Piece, Rule


class Loop:
    """Works on every device and dtype; nothing waits for the device."""

    def __init__(self, rule: Rule) -> None:
        self.rule = rule

    def move(self, pieces: Sequence[Piece], rate: float, change: float = 1.0) -> None:
        """As `Kernel.move`."""
        for piece in pieces:
            self._move(piece, rate, change)

    def _move(self, piece: Piece, rate: float, change: float) -> None:
        weight, _, velocity, _ = piece
        ratio = self._ratio(piece)
        update = piece.gradient.add(weight, alpha=self.rule.weight_decay) if piece.scaled else piece.gradient
        inside = self.rule.keys.ratio_in_momentum
        update, after = (update * ratio, 1.0) if inside else (update, ratio)
        added, taken = self.rule.rates(rate)
        velocity.mul_(self.rule.momentum * change).add_(update, alpha=added)
        weight.add_(velocity * after, alpha=-taken)

    def _ratio(self, piece: Piece) -> Tensor | float:
        """1.0 where the piece is not scaled."""
        weight, gradient, _, scaled = piece
        if not scaled:
            return 1.0
        return self.rule.ratio(vector_norm(weight), vector_norm(gradient))
