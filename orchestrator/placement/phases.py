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
    inside: float  # bytes per byte of gradient that a rank sends to others of its node
    flows: Flows  # bytes per byte of gradient from one position to another
    exchange: bool = False


def phases(rings: Rings, exchange: bool = False) -> tuple[Phase, ...]:
    """The phases in time order; with `exchange`, reduce-scatters are exchanges of everyone with everyone."""
    last = len(rings.dims) - 1
    down, up = list[Phase](), list[Phase]()
    for level, size in enumerate(rings.dims[:last]):
        half = {pair: bytes_ / 2 for pair, bytes_ in rings.levels[level].items()}
        steps, mates = size - 1, min(size, max(1, rings.ranks_per_node // rings.stride(level)))
        inside = rings.hop(level) / 2 if mates > 1 else 0.0
        if exchange:
            part = (mates - 1) / size / rings.stride(level)
            down.append(Phase(f"exchange {level}", level, min(steps, 1), part, exchanged(rings, level), True))
        else:
            down.append(Phase(f"reduce-scatter {level}", level, steps, inside, half))
        up.insert(0, Phase(f"all-gather {level}", level, steps, inside, half))
    inside = rings.hop(last) if rings.stride(last) < rings.ranks_per_node else 0.0
    return (*down, Phase("all-reduce", last, 2 * (rings.dims[last] - 1), inside, rings.levels[last]), *up)


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
