"""The torus all-reduce over gloo: reduce-scatter down the levels of a mesh, all-gather back up.

Source: Mikami et al. 2018, "Massively Distributed SGD", arXiv 1811.05233, section on 2D-torus all-reduce, for two
levels; BlueConnect (Cho et al., MLSys 2019, from memory) for more. The latency falls from the 2(N-1) hops of one ring
to 2(X-1) + 2(Y-1) + 2(Z-1). Only 1/X of the data travels in the columns, and only 1/XY between racks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives.chunks import chunk_weights, split
from torusrun.training.collectives.interface import DownAndUp, MakePhases, Step, Way, wire_dtype
from torusrun.training.reporting.exits import PeerLost

TAGS = 1024  # far more than the chunks that wait for messages at the same time


class Ring:
    """This rank's two neighbours in the order of a process group; `sent_bytes` counts the bytes that it has sent."""

    def __init__(self, group: dist.ProcessGroup) -> None:
        self._group, self._ranks = group, dist.get_process_group_ranks(group)
        self.mine = dist.get_rank(group)
        self.left, self.right = (self.mine - 1) % len(self._ranks), (self.mine + 1) % len(self._ranks)
        self.sent_bytes = 0

    def receive(self, part: Tensor, chunk: int) -> dist.Work | None:
        """Begin to receive from the left."""
        with self._exchange(self.left):
            return self._group.recv([part], self.left, chunk % TAGS) if part.numel() else None

    def send(self, part: Tensor, chunk: int) -> dist.Work | None:
        """Begin to send to the right."""
        self.sent_bytes += part.nbytes
        with self._exchange(self.right):
            return self._group.send([part], self.right, chunk % TAGS) if part.numel() else None

    def wait(self, work: dist.Work | None, neighbour: int) -> None:
        """Wait until a message from the left has arrived, or a message to the right is sent."""
        with self._exchange(neighbour):
            if work:
                work.wait()

    @contextmanager
    def _exchange(self, neighbour: int) -> Iterator[None]:
        try:
            yield
        except RuntimeError as error:
            rank = self._ranks[neighbour]
            raise PeerLost(f"rank {rank} is lost, or waits for a rank that is: {error}") from error


class ReduceScatter:
    """One chunk's reduce-scatter: `parts` has a part for each rank of the ring, and this rank's own becomes the sum.

    The sum is divided by `divisor`. With a wire of 16 bits this rank's part becomes the mean over the ring instead.
    The other parts are left half summed. One chain of ranks sums each part, in the order of the ring.
    """

    def __init__(self, ring: Ring, parts: Sequence[Tensor], wire: torch.dtype, chunk: int, divisor: int) -> None:
        self._ring, self._parts, self._wire, self._chunk, self._divisor = ring, parts, wire, chunk, divisor

    def post(self) -> None:
        mine, parts = self._ring.mine, self._parts
        self._arrived = [torch.empty_like(parts[mine - step], dtype=self._wire) for step in range(2, len(parts) + 1)]
        self._coming = [self._ring.receive(part, self._chunk) for part in self._arrived]

    def run(self) -> None:
        """Send, receive and sum, until this rank's part is complete and its messages are sent."""
        ring, parts, going = self._ring, self._parts, []
        for step, (arrived, arrival) in enumerate(zip(self._arrived, self._coming, strict=True), 1):
            leaving = parts[ring.mine - step].to(self._wire)
            going.append((leaving, ring.send(leaving, self._chunk)))
            ring.wait(arrival, ring.left)
            _add(parts[ring.mine - step - 1], arrived, step)
        if self._divisor > 1 and self._wire == torch.float32:
            parts[ring.mine] /= self._divisor
        for _, departure in going:
            ring.wait(departure, ring.right)


class AllGather:
    """One chunk's all-gather: `parts` has this rank's own part, and gets the parts of all other ranks."""

    def __init__(self, ring: Ring, parts: Sequence[Tensor], wire: torch.dtype, chunk: int) -> None:
        self._ring, self._parts, self._wire, self._chunk = ring, parts, wire, chunk

    def post(self) -> None:
        mine, parts = self._ring.mine, self._parts
        same = parts[0].dtype == self._wire
        others = [parts[mine - step] for step in range(1, len(parts))]
        self._arrived = others if same else [torch.empty_like(part, dtype=self._wire) for part in others]
        self._coming = [self._ring.receive(part, self._chunk) for part in self._arrived]

    def run(self) -> None:
        """Send and receive, until all parts have arrived and this rank's messages are sent."""
        ring, parts = self._ring, self._parts
        leaving, going = parts[ring.mine].to(self._wire), []
        if leaving.dtype != parts[0].dtype:
            parts[ring.mine].copy_(leaving)  # the bits that the others get
        for step, (arrived, arrival) in enumerate(zip(self._arrived, self._coming, strict=True), 1):
            going.append(ring.send(leaving, self._chunk))
            ring.wait(arrival, ring.left)
            if arrived.dtype != parts[0].dtype:
                parts[ring.mine - step].copy_(arrived)
            leaving = arrived
        for departure in going:
            ring.wait(departure, ring.right)


def _add(part: Tensor, arrived: Tensor, ranks: int) -> None:
    """Add one rank's part to the sum of `ranks` ranks in fp32, or to their mean in 16 bits."""
    if arrived.dtype == torch.float32:
        part += arrived
    else:
        part.copy_(torch.lerp(part.float(), arrived.float(), ranks / (ranks + 1)))


class Torus(DownAndUp):
    """A vector travels in chunks: while one chunk is in the second level, the next is in the first.

    A mean in 16 bits differs from the exact mean by at most u (1 + sum of (d-1)/2 over levels of d ranks) times the
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
        return [down.sent_bytes + up.sent_bytes if down and up else 0 for down, up in zip(*self._rings, strict=True)]

    def _ways(self, vector: Tensor) -> list[Way]:
        """The way of every chunk through the phases; a chunk has a share of every rank's shard."""
        weights = chunk_weights(vector.nbytes)
        shards = [split(shard, weights) for shard in split(vector.detach(), [1] * self._dims[0])]
        return [list(self._way(list(parts))) for parts in zip(*shards, strict=True)]

    def _way(self, parts: list[Tensor]) -> Iterator[tuple[int, Step]]:
        self._chunks += 1
        levels = [parts]
        for above, ranks in zip(self._mine, self._dims[1:], strict=False):
            levels.append(split(levels[-1][above], [1] * ranks))
        wire = wire_dtype(parts[0], self._wire)
        last = max((level for level, ring in enumerate(self._rings[0]) if ring), default=0)
        for level, ring in enumerate(self._rings[0]):
            if ring:
                divisor = self.ranks if level == last else 1
                yield level, ReduceScatter(ring, levels[level], wire, self._chunks, divisor)
        for level, ring in reversed(list(enumerate(self._rings[1]))):
            if ring:
                yield self._last_phase - level, AllGather(ring, levels[level], wire, self._chunks)
