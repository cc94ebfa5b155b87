"""All-reduces made of the backend's own collectives, to compare the torus with.

If the wire has 16 bits, every rank divides its vector before the sum, so nothing overflows. But elements below N times
the dtype's smallest number lose bits; the torus over gloo loses none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial

import torch
import torch.distributed as dist
from torch import Tensor

from .groups import exchange, mesh_of, own_group
from .phases import Call, MakePhases, Pending, Way
from .wire import DTYPES, wire_dtype


class Travelling:
    """A vector as it travels: itself, or a copy in the dtype of the wire; `self.tensor` is the summed tensor."""

    def __init__(self, vector: Tensor, wire: torch.dtype, ranks: int) -> None:
        self._vector, self._ranks = vector, ranks
        self._dtype = wire_dtype(vector, wire)
        self.tensor = vector

    def pack(self) -> None:
        """If it travels in 16 bits, copy the vector divided by the number of ranks."""
        if self._dtype != torch.float32:
            self.tensor = (self._vector.float() / self._ranks).to(self._dtype)

    def unpack(self) -> None:
        """Make the sum the mean."""
        if self._dtype == torch.float32:
            self._vector /= self._ranks
        else:
            self._vector.copy_(self.tensor)
            if self.tensor.is_cuda:  # it was made on the stream of the first phase
                self.tensor.record_stream(torch.cuda.current_stream())


class Flat:
    """One all-reduce of the backend over all ranks; `wire_bytes` counts the bytes of a ring."""

    def __init__(self, dims: Sequence[int], phases: MakePhases, wire: str = "fp32") -> None:
        mesh = mesh_of(tuple(dims))
        self.ranks, self._wire, self.wire_bytes = mesh.ranks, DTYPES[wire], [0.0]
        self._group = own_group(list(range(mesh.ranks)))
        self._phases = phases(1, [self._group])

    def padded(self, elements: int) -> int:
        return elements

    def start(self, vector: Tensor) -> Pending:
        """As `AllReduce.start`."""
        return self._phases.start([self._way(vector)])

    def mean_(self, vector: Tensor) -> None:
        """As `AllReduce.mean_`."""
        self._phases.run(self._way(vector))

    def _way(self, vector: Tensor) -> Way:
        travelling = Travelling(vector.detach(), self._wire, self.ranks)
        self.wire_bytes[0] += 2 * (self.ranks - 1) / self.ranks * _bytes(vector, self._wire)
        return [(0, Call(partial(self._reduce, travelling)))]

    def _reduce(self, travelling: Travelling) -> None:
        travelling.pack()
        with exchange(self._group):
            dist.all_reduce(travelling.tensor, group=self._group)
        travelling.unpack()


class Hierarchical:
    """Reduce to the first rank of each group, level by level; all-reduce these in the last level; broadcast back.

    For `wire_bytes` each rank but the first sends one vector in a level's reduction, and the first sends one vector to
    each of the others in its broadcast; the backend chooses the number of messages.
    """

    def __init__(self, dims: Sequence[int], phases: MakePhases, wire: str = "fp32") -> None:
        mesh = mesh_of(tuple(dims))
        rank = dist.get_rank()
        self.ranks, self._wire, self._dims = mesh.ranks, DTYPES[wire], mesh.dims
        self._members = [mesh.group(level, rank) for level in range(len(mesh.dims))]
        self._groups = [(own_group(members), own_group(members)) for members in self._members]
        self._levels = 1 + next((i for i, place in enumerate(mesh.coordinates(rank)) if place), len(mesh.dims) - 1)
        self.wire_bytes = [0.0] * len(mesh.dims)
        self._phases = phases(2 * len(mesh.dims) + 1, [group for pair in self._groups for group in pair])

    def padded(self, elements: int) -> int:
        return elements

    def start(self, vector: Tensor) -> Pending:
        """As `AllReduce.start`."""
        return self._phases.start([list(self._way(vector))])

    def mean_(self, vector: Tensor) -> None:
        """As `AllReduce.mean_`."""
        self._phases.run(list(self._way(vector)))

    def _way(self, vector: Tensor) -> Iterator[tuple[int, Call]]:
        """The calls down the levels of this rank, and back: a rank that is not first in its group goes no further."""
        travelling = Travelling(vector.detach(), self._wire, self.ranks)
        sent_bytes, last = _bytes(vector, self._wire), len(self._dims) - 1
        for level in range(self._levels):
            act = self._sum if level == last else self._reduce
            yield level, Call(partial(act, travelling, level))
            self.wire_bytes[level] += self._sent(level, last) * sent_bytes
        for level in reversed(range(min(self._levels, last))):
            yield 2 * len(self._dims) - 1 - level, Call(partial(self._broadcast, travelling, level))
        yield 2 * len(self._dims), Call(travelling.unpack)

    def _sent(self, level: int, last: int) -> float:
        """The number of vectors that this rank sends in a level."""
        d = self._dims[level]
        if level == last:
            return 2 * (d - 1) / d
        return 1.0 if level == self._levels - 1 else d - 1

    def _reduce(self, travelling: Travelling, level: int) -> None:
        if level == 0:
            travelling.pack()
        group = self._groups[level][0]
        with exchange(group):
            dist.reduce(travelling.tensor, self._members[level][0], group=group)

    def _sum(self, travelling: Travelling, level: int) -> None:
        if level == 0:
            travelling.pack()
        group = self._groups[level][0]
        with exchange(group):
            dist.all_reduce(travelling.tensor, group=group)

    def _broadcast(self, travelling: Travelling, level: int) -> None:
        group = self._groups[level][1]
        with exchange(group):
            dist.broadcast(travelling.tensor, self._members[level][0], group=group)


def _bytes(vector: Tensor, wire: torch.dtype) -> int:
    return vector.numel() * wire_dtype(vector, wire).itemsize
