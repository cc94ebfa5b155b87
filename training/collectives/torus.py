"""The torus all-reduce over gloo: reduce-scatter down the levels of a mesh, all-gather back up.

Source: Mikami et al. 2018, "Massively Distributed SGD", arXiv 1811.05233, section on 2D-torus all-reduce, for two
levels; BlueConnect (Cho et al., MLSys 2019, from memory) for more. The latency falls from the 2(N-1) hops of one ring
to 2(X-1) + 2(Y-1) + 2(Z-1). Only 1/X of the data travels in the columns, and only 1/XY between racks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch import Tensor

from torusrun.training.collectives.chunks import chunk_weights, split
from torusrun.training.collectives.interface import Halves, wire_dtype
from torusrun.training.collectives.phases import MakePhases, Pending, Step, Way
from torusrun.training.collectives.ring import AllGather, ReduceScatter, Ring


class Torus(Halves):
    """A vector travels in chunks: while one chunk is in the second level, the next is in the first.

    A mean in 16 bits differs from the exact one by at most u (1 + sum of (d-1)/2 over levels of d ranks) times the
    largest element of any rank, where u is 2^-11 for fp16 and 2^-8 for bf16: sums are made in fp32, and travelling
    values are rounded once per hop. Vectors that are themselves fp16 or bf16 are rounded once more in each level.
    Nothing overflows: the wire carries means, never sums. Below fp16's smallest normal number, 6e-5, a rounding is at
    most 2^-25. No length needs a copy.
    """

    def __init__(self, dims: Sequence[int], phases: MakePhases, wire: str = "fp32") -> None:
        super().__init__(dims, phases, wire)
        self._rings = [[Ring(group) if group else None for group in half] for half in (self._down, self._up)]
        self._chunks = 0

    @property
    def wire_bytes(self) -> Sequence[float]:
        """As `AllReduce.wire_bytes`; see `mesh.wire_bytes`."""
        return [down.sent_bytes + up.sent_bytes if down and up else 0 for down, up in zip(*self._rings, strict=True)]

    def shard(self, vector: Tensor) -> Tensor:
        return self._shards(vector)[self._mine[0]]

    def start_reduce(self, vector: Tensor) -> Pending:
        return self._phases.start(self._ways(vector, row_up=False))

    def start_gather(self, vector: Tensor) -> Pending:
        return self._phases.start(self._ways(vector, down=False, up=False))

    def _shards(self, vector: Tensor) -> list[Tensor]:
        return split(vector, [1] * self._dims[0])

    def _ways(self, vector: Tensor, down: bool = True, up: bool = True, row_up: bool = True) -> list[Way]:
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
        last = max((level for level, ring in enumerate(self._rings[0]) if ring), default=0)
        for level, ring in enumerate(self._rings[0]):
            if down and ring:
                divisor = self.ranks if level == last else 1
                yield level, ReduceScatter(ring, levels[level], wire, self._chunks, divisor)
        for level, ring in reversed(list(enumerate(self._rings[1]))):
            if ring and (up if level else row_up):
                yield self._last_phase - level, AllGather(ring, levels[level], wire, self._chunks)
