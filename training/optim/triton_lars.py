"""LARS on a GPU in two launches for all tensors: sums of squares, then the step; the host does not wait.

Each program of a launch takes BLOCK numbers of one tensor; a table on the device says which tensor. Sums are added in a
fixed order, without atomics.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple

import torch
from torch import Tensor

from torusrun.training.optim import triton_kernels
from torusrun.training.optim.kernel import Piece, Rule, Unavailable

BLOCK = 4096
SUMMED = 256  # blocks whose sums are added at a time


class _Table(NamedTuple):
    """int64 [5, pieces]: addresses of weights, gradients and velocities, sizes, whether scaled; then of each block."""

    pieces: Tensor
    first_block: Tensor  # of each piece, then the number of blocks
    block_piece: Tensor
    block_begin: Tensor
    aligned: bool


class Triton:
    """LARS for float32 tensors on one GPU, in the current stream."""

    def __init__(self, rule: Rule, device: torch.device) -> None:
        """Raises Unavailable if Triton cannot compile or launch."""
        self.rule = rule
        self._tables: dict[int, tuple[Sequence[Piece], _Table]] = {}
        try:
            ones = torch.ones(3, 8, device=device)
            self.move([Piece(ones[0], ones[1], ones[2], scaled=True)], 0.0)
            ones.sum().item()  # raises if a launch failed
        except Exception as error:  # Triton has no common class for a missing compiler, driver or architecture
            raise Unavailable(f"Triton cannot be used: {' '.join(str(error).split())[:200]}") from None
        self._tables.clear()

    def move(self, pieces: Sequence[Piece], rate: float, change: float = 1.0) -> None:
        table = self._table(pieces)
        common = table.pieces, len(pieces), table.block_piece, table.block_begin
        grid = (len(table.block_piece),)
        sums = torch.empty(*grid, 2, device=table.pieces.device)
        triton_kernels.square_block[grid](*common, sums, ALIGNED=table.aligned, BLOCK=BLOCK)
        rule, keys = self.rule, self.rule.keys
        added, taken = rule.rates(rate)
        triton_kernels.move_block[grid](
            *common, table.first_block, sums,
            *map(float, (added, taken, rule.momentum * change)),
            *map(float, (rule.weight_decay, rule.ratio_decay, keys.trust, keys.eps)),
            RATIO_INSIDE=keys.ratio_in_momentum, ALIGNED=table.aligned, BLOCK=BLOCK, SUMMED=SUMMED,
        )  # fmt: skip

    def _table(self, pieces: Sequence[Piece]) -> _Table:
        """The table for pieces that move together, kept while the same list comes again."""
        first = pieces[0].weight.data_ptr()
        known = self._tables.get(first)
        if known is None or known[0] is not pieces:
            known = self._tables[first] = pieces, _made(pieces)
        return known[1]


def _made(pieces: Sequence[Piece]) -> _Table:
    device = pieces[0].weight.device
    addresses = [[each.data_ptr() for each in row] for row in zip(*(piece[:3] for piece in pieces), strict=True)]
    sizes = [piece.weight.numel() for piece in pieces]
    blocks = [-(-size // BLOCK) for size in sizes]
    first = [0, *accumulate(blocks)]
    piece_of = [piece for piece, count in enumerate(blocks) for _ in range(count)]
    begins = [block * BLOCK for count in blocks for block in range(count)]
    parts = [*addresses, sizes, [int(piece.scaled) for piece in pieces], first, piece_of, begins]
    flat = torch.tensor([number for part in parts for number in part], dtype=torch.int64)
    if device.type == "cuda":
        flat = flat.pin_memory().to(device, non_blocking=True)
    *table, first_block, block_piece, block_begin = torch.split(flat, [len(part) for part in parts])
    aligned = all(address % 16 == 0 for row in addresses for address in row) and all(size % 4 == 0 for size in sizes)
    return _Table(torch.stack(table), first_block, block_piece, block_begin, aligned)
