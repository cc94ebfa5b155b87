"""LARS on a GPU in two launches for all tensors: sums of squares, then the step; the host does not wait.

Each program of a launch takes BLOCK numbers of one tensor; a table on the device says which tensor. Sums are added in a
fixed order, without atomics.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

import torch
import triton

from torusrun.training.optim import triton_kernels
from torusrun.training.optim.kernel import Piece, Rule, Unavailable

BLOCK = 4096
SUMMED = 256  # blocks whose sums are added at a time
NUMBERS = (0.0,) * 7  # as many as a step has


class _Launches(NamedTuple):
    """Both kernels for pieces that move together, and their arguments in each step."""

    pieces: Sequence[Piece]
    square: Callable[..., object]
    squared: tuple[object, ...]
    move: Callable[..., object]
    moved: tuple[object, ...]  # before the numbers of the step
    choices: tuple[object, ...]  # after them


class Triton:
    """LARS for float32 tensors on one GPU, in the current stream."""

    def __init__(self, rule: Rule, device: torch.device) -> None:
        """Raises Unavailable if Triton cannot compile or launch."""
        self.rule = rule
        self._launches: dict[tuple[int, bool], _Launches] = {}
        try:
            ones = torch.ones(3, 8, device=device)
            self.move([Piece(ones[0], ones[1], ones[2], scaled=True)], 0.0)
            ones.sum().item()  # raises if a launch failed
        except Exception as error:  # Triton has no common class for a missing compiler, driver or architecture
            raise Unavailable(f"Triton cannot be used: {' '.join(str(error).split())[:200]}") from None
        self._launches.clear()

    def move(self, pieces: Sequence[Piece], rate: float, change: float = 1.0) -> None:
        """Nothing here is work for each piece while the same list comes again."""
        rule, keys = self.rule, self.rule.keys
        which = pieces[0].weight.data_ptr(), keys.ratio_in_momentum
        made = self._launches.get(which)
        if made is None or made.pieces is not pieces:
            made = self._launches[which] = _made(pieces, keys.ratio_in_momentum)
        made.square(*made.squared)
        numbers = *rule.rates(rate), rule.momentum * change, rule.weight_decay, rule.ratio_decay, keys.trust, keys.eps
        made.move(*made.moved, *map(float, numbers), *made.choices)


def _made(pieces: Sequence[Piece], ratio_inside: bool) -> _Launches:
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
    sums, grid = torch.empty(len(piece_of), 2, device=device), (len(piece_of), 1, 1)
    common = torch.stack(table), len(pieces), block_piece, block_begin
    squared, moved = (*common, sums, aligned, BLOCK), (*common, first_block, sums)
    choices = ratio_inside, aligned, BLOCK, SUMMED
    square = _compiled(triton_kernels.square_block, grid, *squared)
    move = _compiled(triton_kernels.move_block, grid, *moved, *NUMBERS, *choices)
    return _Launches(pieces, square[grid], squared, move[grid], moved, choices)


def _compiled(kernel: Any, grid: tuple[int, int, int], *arguments: object) -> Any:
    """The kernel compiled for these arguments, so that a launch does not search for it; both are launched alike.

    Triton's interpreter compiles nothing, and before 3.3 a compiled kernel took other arguments: the kernel itself.
    """
    if tuple(map(int, triton.__version__.split(".")[:2])) < (3, 3):
        return kernel
    return kernel.warmup(*arguments, grid=grid) or kernel
