"""Chunked pipelining: sum_i t_i(n/c) + (c-1) max_i t_i(n/c) for c chunks through stages t_i.

Source: the usual schedule of a pipeline of unequal stages on separate links (derived). Stages that share a link do
not overlap, so they must be given as one stage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

Stage = Callable[[float], float]


def all_reduce_s(size_bytes: float, stages: Sequence[Stage], chunks: int) -> float:
    """`size_bytes` in `chunks` equal pieces, each through all stages in turn."""
    times = [stage(size_bytes / chunks) for stage in stages]
    return sum(times) + (chunks - 1) * max(times)


def best_chunks(size_bytes: float, stages: Sequence[Stage], most: int = 64) -> int:
    """The number of chunks with the least time; the smallest such."""
    return min(range(1, most + 1), key=lambda chunks: all_reduce_s(size_bytes, stages, chunks))
