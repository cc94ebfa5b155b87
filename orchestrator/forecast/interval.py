"""Intervals of 90 %: the sources of doubt about a number, and its probable range.

Source: derived. A doubt is the seconds within which 90 % of the cases stay. Doubts are taken as independent: their
squares add up, upwards and downwards apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from math import exp, hypot, log
from statistics import fmean
from typing import NamedTuple

SHARE = 0.9
WIDE = 1.5
# Student's t, 95 % on one side, by degrees of freedom (a standard table); beyond it, the normal distribution's.
STUDENT = (6.314, 2.920, 2.353, 2.132, 2.015, 1.943, 1.895, 1.860, 1.833, 1.812)
NORMAL = 1.645


class Interval(NamedTuple):
    """The bounds of a number at 90 %."""

    low: float
    high: float

    def times(self, factor: float) -> Interval:
        return Interval(self.low * factor, self.high * factor)

    def rate_of(self, amount: float) -> Interval:
        """The bounds of `amount` per second if these are those of the seconds."""
        return Interval(amount / self.high, amount / self.low)

    def holds(self, value: float) -> bool:
        return self.low <= value <= self.high

    @property
    def is_wide(self) -> bool:
        """Whether the upper bound is more than 1.5 times the lower one: too much to plan by."""
        return self.high > WIDE * self.low


class Factor(NamedTuple):
    """One reason why a time may be so many times as long."""

    why: str
    between: Interval


@dataclass(frozen=True)
class Doubt:
    """One reason why a time may be shorter or longer, with the seconds at 90 %; both are at least 0."""

    why: str
    less_s: float
    more_s: float


def around(time_s: float, doubts: Iterable[Doubt]) -> Interval:
    """The interval of a time with these doubts; a hundredth of the time at least."""
    every = list(doubts)
    less_s, more_s = hypot(*(doubt.less_s for doubt in every)), hypot(*(doubt.more_s for doubt in every))
    return Interval(max(time_s - less_s, time_s / 100), time_s + more_s)


def together(factors: Iterable[Interval]) -> Interval:
    """The product of independent factors: the squares of their logarithms add up."""
    every = list(factors)
    return Interval(*(exp(sign * hypot(*(log(factor[end]) for factor in every))) for end, sign in ((0, -1), (1, 1))))


def largest(doubts: Sequence[Doubt]) -> Doubt:
    """The doubt that widens an interval most."""
    return max(doubts, key=lambda doubt: doubt.less_s + doubt.more_s)


def middle(values: Sequence[float]) -> float:
    """The geometric mean of values above 0."""
    return exp(fmean(map(log, values)))


def student(freedom: int) -> float:
    """Student's t with so many degrees of freedom, 95 % on one side."""
    return STUDENT[freedom - 1] if freedom <= len(STUDENT) else NORMAL
