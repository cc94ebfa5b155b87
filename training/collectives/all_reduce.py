"""The mean of a vector over all ranks, by one of several algorithms behind one interface.

Those of the backend's own collectives are here, to compare the torus with. If the wire has 16 bits, every rank divides
its vector before the sum, so nothing overflows. But elements below N times the dtype's smallest number lose bits; the
torus over gloo loses none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import prod
from typing import Literal

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives.chunks import HYBRID, Kind, Spans, at_size
from torusrun.training.collectives.interface import (
    AllReduce,
    Call,
    MakePhases,
    Pending,
    Way,
    exchange,
    own_group,
    wire_dtype,
)
from torusrun.training.collectives.nccl_torus import NcclTorus, Streams
from torusrun.training.collectives.pipeline import Pipeline
from torusrun.training.collectives.torus import Torus


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


class Hierarchical(AllReduce):
    """Reduce to the first rank of each group, level by level; all-reduce these in the last level; broadcast back.

    For `wire_bytes` each rank but the first sends one vector in a level's reduction, and the first sends one vector to
    each of the others in its broadcast; the backend chooses the number of messages.
    """

    def __init__(self, dims: Sequence[int], phases: MakePhases, wire: str) -> None:
        super().__init__(dims, wire)
        self._last = len(self._dims) - 1
        self._groups = [(own_group(members), own_group(members)) for members in self._members[: self._last]]
        self._top = own_group(self._members[self._last])
        self._levels = 1 + next((i for i, place in enumerate(self._mine) if place), self._last)
        self._phases = phases(2 * len(self._dims), [*(group for pair in self._groups for group in pair), self._top])

    def _ways(self, vector: Tensor) -> list[Way]:
        return [list(self._way(vector))]

    def _way(self, vector: Tensor) -> Iterator[tuple[int, Call]]:
        """The calls down the levels of this rank, and back: a rank that is not first in its group goes no further."""
        travelling = Travelling(vector.detach(), self._wire, self.ranks)
        for level in range(self._levels):
            yield level, Call(partial(self._sum, travelling, level))
            self._sent_bytes[level] += self._sent(level) * self._travelling_bytes(vector)
        for level in reversed(range(min(self._levels, self._last))):
            yield 2 * self._last - level, Call(partial(self._broadcast, travelling, level))
        yield 2 * self._last + 1, Call(travelling.unpack)

    def _sent(self, level: int) -> float:
        """The number of vectors that this rank sends in a level."""
        d = self._dims[level]
        if level == self._last:
            return 2 * (d - 1) / d
        return 1.0 if level == self._levels - 1 else d - 1

    def _sum(self, travelling: Travelling, level: int) -> None:
        if level == 0:
            travelling.pack()
        group = self._top if level == self._last else self._groups[level][0]
        with exchange(group):
            if level == self._last:
                dist.all_reduce(travelling.tensor, group=group)
            else:
                dist.reduce(travelling.tensor, self._members[level][0], group=group)

    def _broadcast(self, travelling: Travelling, level: int) -> None:
        group = self._groups[level][1]
        with exchange(group):
            dist.broadcast(travelling.tensor, self._members[level][0], group=group)


class Flat(Hierarchical):
    """One all-reduce of the backend over all ranks; `wire_bytes` counts the bytes of a ring."""

    def __init__(self, dims: Sequence[int], phases: MakePhases, wire: str) -> None:
        super().__init__((prod(dims),), phases, wire)


class BySize(AllReduce):
    """Each vector by the all-reduce of its span, which depends on nothing but its bytes: it is the same on all ranks.

    `wire_bytes` has the bytes of each all-reduce, in the order in which the spans first name them.
    """

    def __init__(self, dims: Sequence[int], wire: str, spans: Spans, make: Callable[[Kind], AllReduce]) -> None:
        super().__init__(dims, wire)
        self._spans = spans
        self.made = {name: make(name) for name in dict.fromkeys(span.all_reduce for span in spans)}

    @property
    def wire_bytes(self) -> Sequence[float]:
        return [sent for each in self.made.values() for sent in each.wire_bytes]

    def name(self, vector: Tensor) -> str:
        return self._chosen(vector).name(vector)

    def padded(self, elements: int) -> int:
        return max(each.padded(elements) for each in self.made.values())

    def start(self, vector: Tensor) -> Pending:
        return self._chosen(vector).start(vector)

    def mean_(self, vector: Tensor) -> None:
        self._chosen(vector).mean_(vector)

    def _chosen(self, vector: Tensor) -> AllReduce:
        return self.made[at_size(self._spans, self._travelling_bytes(vector))]


def build(
    name: Literal["auto", "torus", "flat", "hierarchical", "hybrid"],
    dims: tuple[int, ...],
    wire: Literal["fp32", "fp16", "bf16"] = "fp32",
    spans: Spans = (),
) -> AllReduce:
    """An all-reduce over the default process group as a mesh of `dims`; every rank must build it at the same time.

    `wire` is the dtype in which fp32 vectors travel. `auto` takes the all-reduce of each vector from `spans`, the torus
    without any; `hybrid` has its own. Raises ValueError if the product of `dims` is not the number of ranks.
    """
    nccl = dist.get_backend() == "nccl"
    kinds: dict[Kind, Callable[[tuple[int, ...], MakePhases, str], AllReduce]] = {
        "torus": NcclTorus if nccl else Torus, "flat": Flat, "hierarchical": Hierarchical,
    }  # fmt: skip

    def make(kind: Kind) -> AllReduce:
        return kinds[kind](dims, Streams if nccl else Pipeline, wire)

    if name == "hybrid":
        return BySize(dims, wire, spans or HYBRID, make)
    if name == "auto" and spans:
        return BySize(dims, wire, spans, make)
    return make("torus" if name == "auto" else name)
