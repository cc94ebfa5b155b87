"""The place, the step and the rank of each fault: a function of only the seed."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tests.campaign.faults import KINDS
from tests.campaign.spec import FIRST_STEP
from tests.e2e.places import LAST_STEP

RANKS = 4


@dataclass(frozen=True)
class Planned:
    """One fault: it strikes `rank`, if its kind strikes ranks, once rank 0 has recorded `step`."""

    number: int
    place: str
    kind: str
    step: int
    rank: int


def schedule(seed: int, faults: int, kinds: Mapping[str, Sequence[str]]) -> list[Planned]:
    """`faults` faults over the kinds that are possible in each place.

    Each pair of place and kind occurs once before any occurs again. The faults of a place follow each other.
    """
    source = random.Random(seed)
    pairs: list[tuple[str, str]] = []
    while len(pairs) < faults:
        again = [(place, kind) for place, possible in kinds.items() for kind in possible]
        if not again:
            raise ValueError("no kind of fault is possible in any of these places")
        source.shuffle(again)
        pairs += again
    order = {place: position for position, place in enumerate(kinds)}
    drawn = sorted(pairs[:faults], key=lambda pair: order[pair[0]])
    return [
        Planned(number, place, kind, _step(source, kind), source.randrange(RANKS))
        for number, (place, kind) in enumerate(drawn, 1)
    ]


def _step(source: random.Random, kind: str) -> int:
    first, last = KINDS[kind].steps
    return FIRST_STEP + int((LAST_STEP - FIRST_STEP) * source.uniform(first, last))
