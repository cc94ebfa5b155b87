"""The time of one all-reduce as a function of its bytes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Literal

from torusrun.orchestrator.place.cost import nccl
from torusrun.orchestrator.place.cost.nccl import Algorithm
from torusrun.orchestrator.place.cost.phases import PhaseLinks
from torusrun.training.collectives.chunks import chunk_weights

Backend = Literal["nccl", "gloo"]
Cost = Callable[[float], float]  # bytes of gradient -> seconds


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
    compute_capability: int = 80  # of the GPUs

    def __call__(self, size_bytes: float) -> float:
        if self.backend == "nccl" and len(self.phases) == 1:
            return self.unchunked_s(size_bytes)
        return _pipelined_s(self._stages, size_bytes, self.busiest_s_per_byte)

    def unchunked_s(self, size_bytes: float) -> float:
        """Seconds with the phases one after the other."""
        return sum(stage(size_bytes) for stage in self._stages)

    @cached_property
    def _stages(self) -> list[Cost]:
        if self.backend == "gloo":
            return [partial(_gloo_s, phase) for phase in self.phases for _ in range(phase.times)]
        lines = {phase: PhaseTime(phase, self.algorithms, self.compute_capability) for phase in self.phases}
        return [lines[phase] for phase in self.phases]


class PhaseTime:
    """NCCL's time of a phase at the sizes of its table, linear between them; more bytes never take less time."""

    def __init__(self, phase: PhaseLinks, algorithms: tuple[Algorithm, ...], compute_capability: int) -> None:
        self._phase, self._algorithms, self._capability = phase, algorithms, compute_capability
        self._pieces: dict[int, tuple[float, float, float]] = {}  # computed so far: (from bytes, seconds, per byte)

    def __call__(self, size_bytes: float) -> float:
        own_bytes = size_bytes * self._phase.share
        at = min(bisect_right(nccl.SIZES_BYTES, own_bytes), len(nccl.SIZES_BYTES) - 1)
        piece = self._pieces.get(at) or self._pieces.setdefault(at, self._piece(at))
        return piece[1] + (own_bytes - piece[0]) * piece[2]

    def _piece(self, at: int) -> tuple[float, float, float]:
        low, high = nccl.SIZES_BYTES[at - 1 : at + 1]
        sizes = (own / self._phase.share for own in (low, high))
        low_s, high_s = (nccl.phase_s(self._phase, size, self._capability, self._algorithms) for size in sizes)
        return low, low_s, (high_s - low_s) / (high - low)


def _gloo_s(phase: PhaseLinks, size_bytes: float) -> float:
    """Seconds of a reduce-scatter or an all-gather by gloo; the training's all-reduce is both, overlapped.

    A phase takes the longer of its busiest link and its slowest chunk (derived; `benchmarks/predict.py` compares it
    with shaped links): fast hops within nodes do not idle the links between nodes. Additions are not counted.
    """
    phase_s = max(phase.link_s_per_byte * size_bytes, phase.chunk_s + phase.chunk_s_per_byte * size_bytes)
    return phase_s / phase.times


def _pipelined_s(stages: Sequence[Cost], size_bytes: float, busiest_s_per_byte: float) -> float:
    """Seconds for all chunks, as the training cuts them, through all stages; a stage takes one at a time, in order.

    `busiest_s_per_byte` is the link with the largest load over all stages: after the end of the first chunk it must
    still carry the others, and stages that share it wait for one another (derived).
    """
    weights = chunk_weights(int(size_bytes))
    unit = size_bytes / sum(weights)
    took = {weight: [stage(unit * weight) for stage in stages] for weight in set(weights)}
    ends = [0.0] * len(stages)
    for weight in weights:
        before_s = 0.0
        for index, stage_s in enumerate(took[weight]):
            before_s = ends[index] = max(before_s, ends[index]) + stage_s
    first = weights[0]
    return max(ends[-1], sum(took[first]) + busiest_s_per_byte * (size_bytes - first * unit))
