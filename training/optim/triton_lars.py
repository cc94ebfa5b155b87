"""LARS on a GPU in three launches for all tensors; the host does not wait.

Each program of a launch takes BLOCK numbers of one tensor; a table on the device says which tensor. Sums are added in a
fixed order, without atomics. Compiled for sm_70, sm_80 and sm_90, and compared with a loop over the tensors in Triton's
interpreter; not run on a GPU yet (docs/reference/gpu-checks.md).
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
SUMMED = 1024  # blocks whose sums are added at a time


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
        self._tables: dict[int, tuple[tuple[int, ...], _Table]] = {}
        try:
            ones = torch.ones(3, 8, device=device)
            self.move([Piece(ones[0], ones[1], ones[2], scaled=True)], 0.0)
            ones.sum().item()  # raises if a launch failed
        except Exception as error:  # Triton has no common class for a missing compiler, driver or architecture
            raise Unavailable(f"Triton cannot be used: {' '.join(str(error).split())[:200]}") from None
        self._tables.clear()

    def squares(self, pieces: Sequence[Piece]) -> Tensor:
        return self._squares(self._table(pieces))

    def move(self, pieces: Sequence[Piece], rate: float, squares: Tensor | None = None, change: float = 1.0) -> None:
        table = self._table(pieces)
        squares = self._squares(table) if squares is None else squares
        rule, keys = self.rule, self.rule.keys
        added, taken = rule.rates(rate)
        triton_kernels.move_block[(len(table.block_piece),)](
            table.pieces, len(pieces), table.block_piece, table.block_begin, squares,
            *map(float, (rate, added, taken, rule.momentum, rule.momentum * change)),
            *map(float, (rule.weight_decay, rule.ratio_decay, keys.trust, keys.eps)),
            CLIP=keys.clip, NESTEROV=keys.nesterov, RATIO_INSIDE=keys.ratio_in_momentum, ALIGNED=table.aligned,
            BLOCK=BLOCK,
        )  # fmt: skip

    def _squares(self, table: _Table) -> Tensor:
        pieces, blocks = table.pieces.shape[1], len(table.block_piece)
        partial = torch.empty(2, blocks, device=table.pieces.device)
        triton_kernels.square_block[(blocks,)](
            table.pieces, pieces, table.block_piece, table.block_begin, partial, blocks,
            ALIGNED=table.aligned, BLOCK=BLOCK,
        )  # fmt: skip
        squares = torch.empty(pieces, 2, dtype=torch.float64, device=partial.device)
        triton_kernels.add_blocks[(pieces,)](table.first_block, partial, blocks, squares, SUMMED=SUMMED)
        return squares

    def _table(self, pieces: Sequence[Piece]) -> _Table:
        """The table for a group of tensors that move together; a new one if a tensor has a new address."""
        addresses = [
            [tensor.data_ptr() for tensor in tensors] for tensors in zip(*(p[:3] for p in pieces), strict=True)
        ]
        sizes = [piece.weight.numel() for piece in pieces]
        rows = [*addresses, sizes, [int(piece.scaled) for piece in pieces]]
        seen = tuple(number for row in rows for number in row)
        known = self._tables.get(addresses[0][0])
        if known is None or known[0] != seen:
            known = seen, _made(rows, pieces[0].weight.device)
            self._tables[addresses[0][0]] = known
        return known[1]


def _made(rows: list[list[int]], device: torch.device) -> _Table:
    sizes = rows[3]
    blocks = [-(-size // BLOCK) for size in sizes]
    first = [0, *accumulate(blocks)]
    piece_of = [piece for piece, count in enumerate(blocks) for _ in range(count)]
    begins = [block * BLOCK for count in blocks for block in range(count)]
    parts = [*rows, first, piece_of, begins]
    flat = torch.tensor([number for part in parts for number in part], dtype=torch.int64)
    if device.type == "cuda":
        flat = flat.pin_memory().to(device, non_blocking=True)
    *table, first_block, block_piece, block_begin = torch.split(flat, [len(part) for part in parts])
    aligned = all(address % 16 == 0 for row in rows[:3] for address in row) and all(size % 4 == 0 for size in sizes)
    return _Table(torch.stack(table), first_block, block_piece, block_begin, aligned)
