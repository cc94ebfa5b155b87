"""The torus all-reduce over gloo: reduce-scatter down the levels of a mesh, all-gather back up.

Source: Mikami et al. 2018, "Massively Distributed SGD", arXiv 1811.05233, section on 2D-torus all-reduce, for two
levels; BlueConnect (Cho et al., MLSys 2019, from memory) for more. The latency falls from the 2(N-1) hops of one ring
to 2(X-1) + 2(Y-1) + 2(Z-1). Only 1/X of the data travels in the columns, and only 1/XY between racks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import torch.distributed as dist
from torch import Tensor

from .chunks import chunk_weights, split
from .groups import mesh_of, own_group
from .phases import MakePhases, Pending, Step, Way
from .ring import AllGather, ReduceScatter, Ring
from .wire import DTYPES, wire_dtype


class Torus:
    """The default process group as a mesh of `dims`; every rank must create it at the same time.

    Each phase (a level, down or up) has its own process group, and a vector travels in chunks: while one chunk is in
    the second level, the next is in the first. The thread that calls `mean_` carries a vector of one chunk itself.

    `wire` is the dtype in which fp32 vectors travel. A mean in 16 bits differs from the exact one by at most
    u (1 + sum of (d-1)/2 over levels of d ranks) times the largest element of any rank, where u is 2^-11 for fp16 and
    2^-8 for bf16: sums are made in fp32, and travelling values are rounded once per hop. Vectors that are themselves
    fp16 or bf16 are rounded once more in each level. Nothing overflows: the wire carries means, never sums. Below
    fp16's smallest normal number, 6e-5, a rounding is at most 2^-25.

    `wire_bytes` counts the bytes that this rank has sent so far, by level; see `mesh.wire_bytes`.
    """

    def __init__(self, dims: Sequence[int], phases: MakePhases, wire: str = "fp32") -> None:
        mesh = mesh_of(tuple(dims))
        self.ranks, self._wire = mesh.ranks, DTYPES[wire]
        members = [mesh.group(level, dist.get_rank()) for level in range(len(mesh.dims))]
        self._row = members[0]
        self._mine = mesh.coordinates(dist.get_rank())
        self._dims = mesh.dims
        groups = [[own_group(ranks) if len(ranks) > 1 else None for ranks in members] for _ in range(2)]
        self._down, self._up = ([Ring(group) if group else None for group in half] for half in groups)
        self._phases = phases(2 * len(members), [group for half in groups for group in half if group])
        self._chunks = 0

    @property
    def wire_bytes(self) -> list[int]:
        return [
            down.sent_bytes + up.sent_bytes if down and up else 0 for down, up in zip(self._down, self._up, strict=True)
        ]

    @cached_property
    def row_group(self) -> dist.ProcessGroup | None:
        """The ranks that hold the shards of one vector; None if rows have one rank.

        The first call makes the group, so all ranks must make that call at the same time.
        """
        return own_group(self._row) if len(self._row) > 1 else None

    def padded(self, elements: int) -> int:
        """The smallest length from `elements` on with equal shards on all ranks; other lengths need no copy either."""
        return -(-elements // self.ranks) * self.ranks

    def start(self, vector: Tensor) -> Pending:
        """Begin to replace a contiguous 1-D `vector` by its mean over all ranks, with the same bits on every rank."""
        return self._phases.start(self._ways(vector, down=True, up=True, row_up=True))

    def mean_(self, vector: Tensor) -> None:
        """Replace `vector` by its mean."""
        ways = self._ways(vector, down=True, up=True, row_up=True)
        if len(ways) == 1:
            self._phases.run(ways[0])
        else:
            self._phases.start(ways).wait()

    def shard(self, vector: Tensor) -> Tensor:
        """A view of this rank's 1/X of a vector, if rows have X ranks."""
        return self._shards(vector)[self._mine[0]]

    def start_reduce(self, vector: Tensor) -> Pending:
        """Begin to replace `shard(vector)` by its mean over all ranks; the rest of the vector becomes useless."""
        return self._phases.start(self._ways(vector, down=True, up=True, row_up=False))

    def start_gather(self, vector: Tensor) -> Pending:
        """Begin to fill `vector` with the shards of all ranks of the row."""
        return self._phases.start(self._ways(vector, down=False, up=False, row_up=True))

    def _shards(self, vector: Tensor) -> list[Tensor]:
        return split(vector, [1] * self._dims[0])

    def _ways(self, vector: Tensor, down: bool, up: bool, row_up: bool) -> list[Way]:
        """The way of every chunk through the phases; a chunk has a share of every rank's shard."""
        weights = chunk_weights(vector.nbytes)
        shards = [split(shard, weights) for shard in self._shards(vector.detach())]
        return [list(self._way(list(parts), down, up, row_up)) for parts in zip(*shards, strict=True)]

    def _way(self, parts: list[Tensor], down: bool, up: bool, row_up: bool) -> Iterator[tuple[int, Step]]:
        self._chunks += 1
        levels = [parts]
        for above, ranks in zip(self._mine, self._dims[1:], strict=False):
            levels.append(split(levels[-1][above], [1] * ranks))
        wire = wire_dtype(parts[0], self._wire)
        last = max((level for level, ring in enumerate(self._down) if ring), default=0)
        for level, ring in enumerate(self._down):
            if down and ring:
                divisor = self.ranks if level == last else 1
                yield level, ReduceScatter(ring, levels[level], wire, self._chunks, divisor)
        for level, ring in reversed(list(enumerate(self._up))):
            if ring and (up if level else row_up):
                yield 2 * len(levels) - 1 - level, AllGather(ring, levels[level], wire, self._chunks)
