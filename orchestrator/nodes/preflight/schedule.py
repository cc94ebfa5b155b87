"""Which nodes are measured with which, in rounds: in each round every node has one partner, and never the same twice.

The rounds are some of those of a round-robin tournament by the circle method (Kirkman, 1847): one node is fixed and the
others turn around it. ceil(log2(N)) + 1 of them are made, 7 for 64 nodes and 8 for 128.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

Round = list[tuple[str, str]]


def schedule(hosts: Sequence[str]) -> list[Round]:
    """The rounds of pairs. With an odd number of hosts, one host has no partner in each round."""
    places: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    turning = len(places) - 1
    count = min(turning, math.ceil(math.log2(len(hosts))) + 1) if len(hosts) > 1 else 0
    return [_round(places, turning * number // count) for number in range(count)]


def _round(places: Sequence[str | None], turn: int) -> Round:
    turning = len(places) - 1
    pairs = [(places[turning], places[turn])]
    pairs += [(places[(turn + k) % turning], places[(turn - k) % turning]) for k in range(1, len(places) // 2)]
    return [(first, second) for first, second in pairs if first is not None and second is not None]
