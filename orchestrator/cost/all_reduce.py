"""The time of one all-reduce as a function of its bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from orchestrator.cost import gloo, nccl
from orchestrator.cost.nccl import Algorithm
from orchestrator.cost.phases import PhaseLinks

Backend = Literal["nccl", "gloo"]
Cost = Callable[[float], float]


@dataclass(frozen=True)
class AllReduceTime:
    """The phases of a grid's all-reduce, in time order, and who carries them out.

    Call it with bytes for seconds. `busiest_s_per_byte` is the link that carries most in all phases together.
    """

    phases: tuple[PhaseLinks, ...]
    busiest_s_per_byte: float
    backend: Backend
    algorithms: tuple[Algorithm, ...] = ("ring", "tree")  # of NCCL

    def __call__(self, size_bytes: float) -> float:
        if self.backend == "gloo":
            chunks = gloo.chunks_of(size_bytes) if len(self.phases) > 1 else 1
            return gloo.all_reduce_s(self.phases, self.busiest_s_per_byte, size_bytes, chunks)
        return sum(self._nccl_s(index, size_bytes) for index in range(len(self.phases)))

    def unchunked_s(self, size_bytes: float) -> float:
        """One phase after the other, also with gloo."""
        if self.backend == "gloo":
            return gloo.all_reduce_s(self.phases, self.busiest_s_per_byte, size_bytes, 1)
        return self(size_bytes)

    def _nccl_s(self, index: int, size_bytes: float) -> float:
        """One phase: NCCL's model at the sizes of its table, straight lines between; more bytes never take less."""
        table = nccl.SIZES_BYTES
        own = size_bytes * self.phases[index].share
        at = min(bisect_right(table, own), len(table) - 1)
        if (index, at) not in self._lines:
            low, high = (nccl.phase_s(self.phases[index], size / self.phases[index].share, self.algorithms)
                         for size in table[at - 1 : at + 1])  # fmt: skip
            self._lines[index, at] = low, (high - low) / (table[at] - table[at - 1])
        start_s, byte_s = self._lines[index, at]
        return start_s + (own - table[at - 1]) * byte_s

    @cached_property
    def _lines(self) -> dict[tuple[int, int], tuple[float, float]]:
        """What has been asked so far: seconds where a line begins, and for every byte more."""
        return {}
