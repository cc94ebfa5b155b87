"""The two halves of a ring all-reduce, as messages between neighbours: gloo has neither half as a ring.

gloo's reduce-scatter all-reduces everything and slices. Its all-to-all posts sends before receives, so two ranks that
send to each other at once take turns on their connection (1.9 times the time on a shaped link). Here all receives of a
chunk are posted when the chunk begins, phases ahead of the data: no sender waits for the notice of a receive behind
the data of other chunks. Source: Patarasuk and Yuan 2009, section 4 (from memory); each of N ranks sends (N-1)/N of the
vector in each half.

If the wire has 16 bits, it carries the mean over the ranks so far and not the sum: nothing overflows, and a scale costs
no bits. Each sum is made in fp32.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives.cut_off import PeerLost

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
        """Wait until a message from the left has arrived, or one to the right is sent."""
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
        """Begin to receive."""
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
        """Begin to receive."""
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
