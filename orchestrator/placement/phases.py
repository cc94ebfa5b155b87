"""The all-reduce of a grid phase by phase, in the order in which the phases follow one another.

Down the levels every ring reduce-scatters, the last level all-reduces, and back up every ring all-gathers: half of a
level's bytes one way, half the other (`rings`). A library may reduce-scatter by exchanging parts instead, everyone with
everyone: torusrun does with gloo, whose own reduce-scatter is a whole all-reduce. Then each of the d(d-1) ordered pairs
of a ring of level i sends 1 / (d_1 ... d_i) bytes per byte of gradient: as many in all, over other links.
"""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass

from orchestrator.placement.rings import Flows, Rings


@dataclass(frozen=True)
class Phase:
    """One phase; `steps` are the messages that follow one another in it."""

    name: str
    level: int
    steps: int
    flows: Flows  # bytes per byte of gradient from one position to another


def phases(rings: Rings, exchange: bool = False) -> tuple[Phase, ...]:
    """The phases in time order; with `exchange`, reduce-scatters are exchanges of everyone with everyone."""
    last = len(rings.dims) - 1
    down, up = list[Phase](), list[Phase]()
    for level, size in enumerate(rings.dims[:last]):
        half = {pair: bytes_ / 2 for pair, bytes_ in rings.levels[level].items()}
        scattered = exchanged(rings, level) if exchange else half
        down.append(Phase(f"reduce-scatter {level}", level, size - 1, scattered))
        up.insert(0, Phase(f"all-gather {level}", level, size - 1, half))
    return (*down, Phase("all-reduce", last, 2 * (rings.dims[last] - 1), rings.levels[last]), *up)


def exchanged(rings: Rings, level: int) -> Flows:
    """What the pairs of a level's rings send when each sends every other its part at once."""
    size, stride, per_node = rings.dims[level], rings.stride(level), rings.ranks_per_node
    part, flows = 1 / size / stride, defaultdict[tuple[int, int], float](float)
    for rank in range(rings.ranks):
        first = rank - rank // stride % size * stride
        for there in range(first, first + size * stride, stride):
            if rank // per_node != there // per_node:
                flows[rank // per_node, there // per_node] += part
    return dict(flows)
