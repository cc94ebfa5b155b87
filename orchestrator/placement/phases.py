"""The all-reduce of a grid phase by phase, in the order in which the phases follow one another.

Down the levels every ring reduce-scatters, the last level all-reduces, and back up every ring all-gathers: half of a
level's bytes one way, half the other (`rings`).
"""

from __future__ import annotations

from dataclasses import dataclass

from orchestrator.placement.rings import Flows, Rings


@dataclass(frozen=True)
class Phase:
    """One phase; `steps` are the messages that follow one another in it."""

    name: str
    level: int
    steps: int
    intra_node: float  # bytes per byte of gradient that a rank sends to its neighbour, where that is in its node
    flows: Flows  # bytes per byte of gradient from one position to another


def phases(rings: Rings) -> tuple[Phase, ...]:
    """The phases in time order."""
    last = len(rings.dims) - 1
    down, up = list[Phase](), list[Phase]()
    for level, size in enumerate(rings.dims[:last]):
        half = {pair: bytes_ / 2 for pair, bytes_ in rings.levels[level].items()}
        intra_node = _intra_node(rings, level) / 2
        down.append(Phase(f"reduce-scatter {level}", level, size - 1, intra_node, half))
        up.insert(0, Phase(f"all-gather {level}", level, size - 1, intra_node, half))
    return (
        *down,
        Phase("all-reduce", last, 2 * (rings.dims[last] - 1), _intra_node(rings, last), rings.levels[last]),
        *up,
    )


def _intra_node(rings: Rings, level: int) -> float:
    return rings.hop(level) if rings.stride(level) < rings.ranks_per_node else 0.0
