"""The possible grids of a number of ranks."""

from __future__ import annotations

from math import isqrt


def divisors(number: int) -> list[int]:
    """All divisors of a positive number, in order."""
    small = [d for d in range(1, isqrt(number) + 1) if number % d == 0]
    return small + [number // d for d in reversed(small) if d * d != number]


def shapes(ranks: int) -> list[tuple[int, ...]]:
    """All grids of one to three levels, each level of two ranks or more; one level for one rank."""
    rows = [d for d in divisors(ranks) if d > 1]
    two = [(x, ranks // x) for x in rows[:-1]]
    three = [(x, y, rest // y) for x, rest in two for y in divisors(rest)[1:-1]]
    return [(ranks,), *two, *three]
