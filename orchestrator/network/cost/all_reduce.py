"""The time of one all-reduce as a function of its bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

from orchestrator.network.cost import gloo, nccl
from orchestrator.network.cost.nccl import Algorithm
from orchestrator.network.cost.phases import PhaseLinks
from orchestrator.network.cost.pipeline import Stage, pipelined_s

Backend = Literal["nccl", "gloo"]
Cost = Callable[[float], float]


@dataclass(frozen=True)
class AllReduceTime:
    """The phases of a grid's all-reduce, in time order, and the backend.

    A call converts bytes to seconds: in chunks, as in the training, unless NCCL all-reduces over a single level.
    `busiest_s_per_byte` is the time of the link with the largest load over all phases.
    """

    phases: tuple[PhaseLinks, ...]
    busiest_s_per_byte: float
    backend: Backend
    algorithms: tuple[Algorithm, ...] = ("ring", "tree")  # of NCCL

    def __call__(self, size_bytes: float) -> float:
        if self.backend == "nccl" and len(self.phases) == 1:
            return self.unchunked_s(size_bytes)
        return pipelined_s(self._stages, size_bytes, self.busiest_s_per_byte)

    def unchunked_s(self, size_bytes: float) -> float:
        """Seconds with the phases one after the other."""
        return sum(stage(size_bytes) for stage in self._stages)

    @cached_property
    def _stages(self) -> list[Stage]:
        if self.backend == "gloo":
            return [partial(gloo.half_s, phase) for phase in self.phases for _ in range(phase.times)]
        lines = {phase: PhaseTime(phase, self.algorithms) for phase in self.phases}
        return [lines[phase] for phase in self.phases]


class PhaseTime:
    """NCCL's time of a phase at the sizes of its table, linear between them; more bytes never take less time."""

    def __init__(self, phase: PhaseLinks, algorithms: tuple[Algorithm, ...]) -> None:
        self._phase, self._algorithms = phase, algorithms
        self._pieces: dict[int, tuple[float, float, float]] = {}  # computed so far: (from bytes, seconds, per byte)

    def __call__(self, size_bytes: float) -> float:
        """Seconds for a gradient of `size_bytes`."""
        own_bytes = size_bytes * self._phase.share
        at = min(bisect_right(nccl.SIZES_BYTES, own_bytes), len(nccl.SIZES_BYTES) - 1)
        piece = self._pieces.get(at) or self._pieces.setdefault(at, self._piece(at))
        return piece[1] + (own_bytes - piece[0]) * piece[2]

    def _piece(self, at: int) -> tuple[float, float, float]:
        low, high = nccl.SIZES_BYTES[at - 1 : at + 1]
        low_s, high_s = (nccl.phase_s(self._phase, own / self._phase.share, self._algorithms) for own in (low, high))
        return low, low_s, (high_s - low_s) / (high - low)
