"""Few, round numbers along an axis, and how they are written."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, log10

MOST = 5
LEAST = 1e-300  # the shortest axis with more than one tick
ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
UNITS = ((86400.0, "days", 3.0), (3600.0, "hours", 2.0), (60.0, "minutes", 2.0), (1.0, "seconds", 0.0))


def ticks(low: float, high: float, most: int = MOST) -> list[float]:
    """At most `most` multiples of a round number, all from `low` to `high`."""
    if not high - low > LEAST:
        return [low]
    size = 10.0 ** floor(log10((high - low) / most))
    for step in (size * factor * scale for scale in (1.0, 10.0) for factor in ROUND):
        first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
        if last - first < most:
            return [number * step for number in range(first, last + 1)]
    raise AssertionError


def powers(low: float, high: float) -> list[float]:
    """Numbers from `low` to `high` for a logarithmic axis: powers of ten, and if they are few 2 and 5 of each."""
    first, last = floor(log10(low)), ceil(log10(high))
    every = max(1, ceil((last - first) / MOST))
    found = [10.0**number for number in range(first, last + 1, every)]
    if last - first <= 3:
        found = [factor * power for power in found for factor in (1.0, 2.0, 5.0)]
    return [value for value in found if low <= value <= high]


def written(values: list[float]) -> Callable[[float], str]:
    """How to write these ticks: '0.25', '40', '12k', '1.5M', all with equally many digits."""
    largest = max(map(abs, values), default=0.0)
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= least:
            return lambda value: f"{value / size:.6g}{unit}" if value else "0"
    if largest < 1e-3:
        return "{:.3g}".format
    gap = min((later - one for one, later in zip(values, values[1:], strict=False)), default=largest)
    digits = next(n for n in range(8) if n == 7 or abs(gap * 10**n - round(gap * 10**n)) < 1e-6 * gap * 10**n)
    return lambda value: f"{value:.{digits}f}"


def time_unit(longest_s: float) -> tuple[float, str]:
    """(seconds, name) of the unit in which a time axis is written."""
    return next((size, name) for size, name, least in UNITS if longest_s >= size * least)
