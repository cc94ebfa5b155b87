"""The possible grids of a number of ranks."""

from __future__ import annotations

from collections.abc import Iterator
from math import isqrt


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, in order."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def shapes(ranks: int) -> list[tuple[int, ...]]:
    """All grids of one to three levels, each level of two ranks or more; one level for one rank."""
    several = (shape for levels in (2, 3) for shape in of_levels(ranks, levels) if min(shape) > 1)
    return [(ranks,), *several]


def of_levels(ranks: int, levels: int) -> Iterator[tuple[int, ...]]:
    """All grids with this number of levels, of one rank or more."""
    if levels == 1:
        yield (ranks,)
        return
    for first in divisors(ranks):
        for rest in of_levels(ranks // first, levels - 1):
            yield (first, *rest)
