"""The 2-D torus all-reduce: reduce-scatter in the row, all-reduce in the column, all-gather in the row.

Source: Mikami et al. 2018, "Massively Distributed SGD", arXiv 1811.05233, section on 2D-torus all-reduce. The
latency falls from the 2(N-1) hops of one ring to 2(X-1) + 2(Y-1), and only 1/X of the data travels in the
columns.
"""

from __future__ import annotations

import torch.distributed as dist
from torch import Tensor

from . import ring  # relative, as in all of this package: scripts load it under another name (for_scripts)

# torch 2.13 renamed both and warns about the old names.
_reduce_scatter_op = getattr(dist, "reduce_scatter_single", None) or dist.reduce_scatter_tensor
_all_gather_op = getattr(dist, "all_gather_single", None) or dist.all_gather_into_tensor


class Torus:
    """The ranks of the default process group as a grid of `x_ranks` x `y_ranks`, rank = y * x_ranks + x.

    A row is the ranks with the same y, a column those with the same x. Every rank must create it at the same
    time. `row_bytes_sent` and `column_bytes_sent` count what this rank has put on the wire so far, see
    `wire_bytes`.
    """

    def __init__(self, x_ranks: int, y_ranks: int) -> None:
        if x_ranks * y_ranks != dist.get_world_size():
            raise ValueError(f"grid {x_ranks} x {y_ranks} does not hold the {dist.get_world_size()} ranks of the group")
        self.x_ranks, self.y_ranks = x_ranks, y_ranks
        self.row_bytes_sent = self.column_bytes_sent = 0.0
        rows = [[y * x_ranks + x for x in range(x_ranks)] for y in range(y_ranks)]
        columns = [list(column) for column in zip(*rows, strict=True)]
        self._row = _own_group(rows) if x_ranks > 1 else None
        self._column = _own_group(columns) if y_ranks > 1 else None

    def padded(self, elements: int) -> int:
        """The next length that rows can split evenly."""
        return -(-elements // self.x_ranks) * self.x_ranks

    def sum_(self, vector: Tensor) -> None:
        """Replace the contiguous 1-D `vector` by its sum over all ranks, with the same bits on every rank.

        A length that is not a multiple of the row costs a copy into a padded buffer.
        """
        if vector.numel() % self.x_ranks == 0:
            self._sum(vector)
            return
        buffer = vector.new_zeros(self.padded(vector.numel()))
        buffer[: vector.numel()] = vector
        self._sum(buffer)
        vector.copy_(buffer[: vector.numel()])

    def _sum(self, buffer: Tensor) -> None:
        row_bytes, column_bytes = wire_bytes(buffer.nbytes, self.x_ranks, self.y_ranks)
        self.row_bytes_sent += row_bytes
        self.column_bytes_sent += column_bytes
        if self._row is None:
            self._sum_in_column(buffer)
            return
        if dist.get_backend(self._row) == "nccl":
            shard = buffer.new_empty(buffer.numel() // self.x_ranks)
            _reduce_scatter_op(shard, buffer, group=self._row)
            self._sum_in_column(shard)
            _all_gather_op(buffer, shard, group=self._row)
        else:
            self._sum_in_column(ring.reduce_scatter(buffer, self._row))
            ring.all_gather(buffer, self._row)

    def _sum_in_column(self, shard: Tensor) -> None:
        if self._column is not None:
            dist.all_reduce(shard, group=self._column)


def wire_bytes(buffer_bytes: int, x_ranks: int, y_ranks: int) -> tuple[float, float]:
    """Bytes that one rank sends (row, column) to reduce a padded buffer of n = `buffer_bytes`.

    Row: 2 (X-1)/X n, half in the reduce-scatter and half in the all-gather. Column: 2 (Y-1)/Y n/X, a ring
    all-reduce of the shard. As many bytes are received.
    """
    row = 2 * (x_ranks - 1) / x_ranks * buffer_bytes
    column = 2 * (y_ranks - 1) / y_ranks * buffer_bytes / x_ranks
    return row, column


def _own_group(members: list[list[int]]) -> dist.ProcessGroup:
    """Create all groups, as every rank must, in the same order; returns the one this rank is in."""
    groups: list[dist.ProcessGroup] = [dist.new_group(ranks) for ranks in members]
    return next(group for group, ranks in zip(groups, members, strict=True) if dist.get_rank() in ranks)
