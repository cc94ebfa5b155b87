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
        return sum(times * line(size_bytes * share) for line, share, times in self._lines)

    def unchunked_s(self, size_bytes: float) -> float:
        """One phase after the other, also with gloo."""
        if self.backend == "gloo":
            return gloo.all_reduce_s(self.phases, self.busiest_s_per_byte, size_bytes, 1)
        return self(size_bytes)

    @cached_property
    def _lines(self) -> list[tuple[Line, float, int]]:
        """For every phase: its time by what a rank holds, the share of the gradient that this is, how often it comes."""
        found = dict.fromkeys(self.phases)
        return [(Line(phase, self.algorithms), phase.share, self.phases.count(phase)) for phase in found]


class Line:
    """NCCL's time of a phase at the sizes of its table, straight lines between; more bytes never take less."""

    def __init__(self, phase: PhaseLinks, algorithms: tuple[Algorithm, ...]) -> None:
        self._phase, self._algorithms = phase, algorithms
        self._pieces: dict[int, tuple[float, float, float]] = {}  # asked for so far: (from bytes, seconds, per byte)

    def __call__(self, own_bytes: float) -> float:
        """Seconds for a rank that holds `own_bytes`."""
        at = min(bisect_right(nccl.SIZES_BYTES, own_bytes), len(nccl.SIZES_BYTES) - 1)
        piece = self._pieces.get(at) or self._pieces.setdefault(at, self._piece(at))
        return piece[1] + (own_bytes - piece[0]) * piece[2]

    def _piece(self, at: int) -> tuple[float, float, float]:
        low, high = nccl.SIZES_BYTES[at - 1 : at + 1]
        low_s, high_s = (nccl.phase_s(self._phase, own / self._phase.share, self._algorithms) for own in (low, high))
        return low, low_s, (high_s - low_s) / (high - low)
