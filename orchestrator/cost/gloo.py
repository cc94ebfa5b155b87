"""gloo: rings only, and a vector in chunks, so that the levels work side by side.

A phase takes the longer of its busiest link and its slowest chunk (derived; `benchmarks/predict.py` holds that against
shaped links): fast hops within nodes do not idle the links between nodes. Additions are not charged.
"""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.cost.phases import PhaseLinks

# As the training cuts a vector (training/sync/torus.py; a test compares them).
CHUNK_BYTES, MOST_CHUNKS = 256 * 1024, 16


def chunks_of(size_bytes: float) -> int:
    """In how many chunks a vector goes through the levels."""
    return max(1, min(MOST_CHUNKS, int(size_bytes) // CHUNK_BYTES))


def phase_s(phase: PhaseLinks, size_bytes: float) -> float:
    """One phase of a gradient of `size_bytes`."""
    return max(phase.link_s_per_byte * size_bytes, phase.chunk_s + phase.chunk_s_per_byte * size_bytes)


def all_reduce_s(phases: Sequence[PhaseLinks], busiest_s_per_byte: float, size_bytes: float, chunks: int) -> float:
    """All phases, when `chunks` chunks follow one another through them.

    The first chunk passes all phases; then one chunk ends whenever the slowest phase has done one, or the link that
    is the busiest of all has carried one: `busiest_s_per_byte` counts all phases. One chunk: the sum of the phases.
    """
    part = size_bytes / chunks
    took = [phase_s(phase, part) for phase in phases]
    return sum(took) + (chunks - 1) * max([*took, busiest_s_per_byte * part])
