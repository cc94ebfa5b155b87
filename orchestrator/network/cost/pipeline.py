"""The time of a vector that passes the phases in chunks, as the training cuts it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from training.collectives.chunks import chunk_weights

Stage = Callable[[float], float]  # bytes of gradient -> seconds


def pipelined_s(stages: Sequence[Stage], size_bytes: float, busiest_s_per_byte: float) -> float:
    """Seconds for all chunks through all stages. A stage takes one chunk at a time, in order; stages overlap.

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
