"""gloo's time of a phase: rings only.

A phase takes the longer of its busiest link and its slowest chunk (derived; `benchmarks/predict.py` compares it with
shaped links): fast hops within nodes do not idle the links between nodes. Additions are not counted.
"""

from __future__ import annotations

from orchestrator.network.cost.phases import PhaseLinks


def half_s(phase: PhaseLinks, size_bytes: float) -> float:
    """Seconds of a reduce-scatter or an all-gather; the training's all-reduce is both, overlapped."""
    phase_s = max(phase.link_s_per_byte * size_bytes, phase.chunk_s + phase.chunk_s_per_byte * size_bytes)
    return phase_s / phase.times
