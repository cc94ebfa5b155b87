"""A forecast of any program: the time of its step and the number of its steps, by the number of ranks.

Source: derived. Between two measured sizes a value has a fixed part and a part for the ranks: a + b r if it grows, and
a + b / r if it falls, as a share of fixed work does. The interval spans both, a power of r, and the spread of the runs.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from math import exp, hypot, log, sqrt
from statistics import fmean
from typing import Any

from torusrun.orchestrator.forecast import doubts
from torusrun.orchestrator.forecast.interval import Interval, middle, student
from torusrun.training.counted import counted

SCHEMA = 1
WITHIN_FREEDOM = 4  # of a standard error by five parts of a run
APART = 1.25  # the factor of doubt for every doubling of the ranks beyond the measured sizes [from memory]
STEEPEST = 2.0  # the power of the ranks with which a step grows beyond the measured sizes, at most [from memory]
SPREAD = "the step differs from run to run by {:.2g} % ({})"
WITHIN = "the mean step of a run is uncertain by {:.2g} %, and no size was measured twice"
BETWEEN = "{:,} ranks were not measured: the step there is between those of {:,} and {:,} ranks"
BEYOND = "{:,} ranks are outside what was measured, {}: this is extrapolated"
NO_TOTAL = (
    "the number of steps is not known, so this is the time of a step: report `total_steps` beside `step` "
    "(a key of a JSON line, or a named group of metrics.pattern), or let a run reach its end"
)


@dataclass(frozen=True)
class MeasuredRun:
    """A run of the program that is over: its mean step with its standard error (a share), and its steps if known.

    A step has the evaluations and checkpoints that fell between the steps that were measured.
    """

    run: str
    ranks: int
    step_s: float
    spread: float
    total_steps: int | None = None


@dataclass(frozen=True)
class ProgramForecast:
    """The time of a step on so many ranks, and of all steps if their number is known, with intervals of 90 %."""

    ranks: int
    step_s: float
    step_between_s: Interval
    steps: int | None
    doubts: tuple[str, ...]
    runs: tuple[MeasuredRun, ...]

    @property
    def total_s(self) -> float | None:
        """The time of all steps, without start-up; None if their number is not known."""
        return None if self.steps is None else self.steps * self.step_s

    @property
    def total_between_s(self) -> Interval | None:
        return None if self.steps is None else self.step_between_s.times(self.steps)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The numbers of ranks that were measured."""
        return tuple(sorted({run.ranks for run in self.runs}))

    def as_json(self) -> dict[str, Any]:
        """The forecast for programs."""
        between = {"step_s": self.step_between_s, **({"total_s": self.total_between_s} if self.steps else {})}
        return {"schema": SCHEMA, **asdict(self), "total_s": self.total_s, "intervals": between}


def forecast(runs: Sequence[MeasuredRun], ranks: int) -> ProgramForecast:
    """The forecast of a program on so many ranks by at least one run of it."""
    steps_s = {size: middle([run.step_s for run in of_size]) for size, of_size in _by_size(runs).items()}
    totals = _by_size([run for run in runs if run.total_steps])
    counts = {size: fmean([run.total_steps or 0 for run in of_size]) for size, of_size in totals.items()}
    step_s, between = _at(steps_s, ranks)
    factor, why = _spread(runs)
    steps = round(_at(counts, ranks)[0]) if counts else None
    return ProgramForecast(
        ranks,
        step_s,
        Interval(between.low / factor, between.high * factor),
        steps,
        (why, *_of_size(sorted(steps_s), ranks), *([] if steps else [NO_TOTAL])),
        tuple(runs),
    )


def _by_size(runs: Sequence[MeasuredRun]) -> Mapping[int, list[MeasuredRun]]:
    of_size: dict[int, list[MeasuredRun]] = defaultdict(list)
    for run in runs:
        of_size[run.ranks].append(run)
    return of_size


def _at(known: Mapping[int, float], ranks: int) -> tuple[float, Interval]:
    """The value at a number of ranks by those that are known, all above 0, and its bounds without their spread."""
    sizes = sorted(known)
    if ranks in known:
        return known[ranks], Interval(known[ranks], known[ranks])
    if len(sizes) == 1:
        return _by_one(known[sizes[0]], ranks / sizes[0])
    few, many = next((pair for pair in pairwise(sizes) if ranks < pair[1]), (sizes[-2], sizes[-1]))
    forms = _forms(few, known[few], many, known[many], ranks)
    value = forms[0] if known[many] >= known[few] else forms[1]
    if few < ranks < many:
        return value, Interval(min(forms), max(forms))
    nearest = few if ranks < few else many
    unchanged, apart = known[nearest], APART ** abs(log(ranks / nearest, 2))
    bounds = (*forms, unchanged)
    return value, Interval(min(bounds) / apart, max(bounds) * apart)


def _forms(few: int, at_few: float, many: int, at_many: float, ranks: int) -> tuple[float, float, float]:
    """The value as a + b r, as a + b / r, and as c r^p; beyond the sizes it falls no faster than the ranks change."""
    along = (ranks - few) / (many - few)
    inverse = (1 / ranks - 1 / few) / (1 / many - 1 / few)
    linear, shared = (at_few + share * (at_many - at_few) for share in (along, inverse))
    nearest, at_nearest = (few, at_few) if ranks < few else (many, at_many)
    power, times, between = log(at_many / at_few) / log(many / few), ranks / nearest, few <= ranks <= many
    if not between:  # sizes that are close to each other measure mostly noise
        power = min(max(power, -1.0), STEEPEST)
    values = linear, shared, at_nearest * times**power
    least = 0.0 if between else at_nearest * min(times, 1 / times)
    return max(values[0], least), max(values[1], least), max(values[2], least)


def _by_one(value: float, times: float) -> tuple[float, Interval]:
    """The value on `times` as many ranks as those of the only size: between unchanged work and work that is shared."""
    apart = APART ** abs(log(times, 2))
    return value, Interval(value * min(1.0, 1 / times) / apart, value * max(1.0, 1 / times) * apart)


def _spread(runs: Sequence[MeasuredRun]) -> tuple[float, str]:
    """The factor of the next run's step by the spread of the known ones, and what it is in words.

    Source: Student's t on logarithms, with the spread of all sizes pooled (a standard formula).
    """
    groups = [[log(run.step_s) for run in of_size] for of_size in _by_size(runs).values()]
    freedom = sum(len(logs) - 1 for logs in groups)
    repeated = doubts.number("same_program") - 1
    if not freedom:
        within = max(run.spread for run in runs)
        return 1 + hypot(repeated, student(WITHIN_FREEDOM) * within), WITHIN.format(100 * within)
    squares = sum((each - fmean(logs)) ** 2 for logs in groups for each in logs)
    deviation = sqrt(squares / freedom)
    reach = student(freedom) * deviation * sqrt(1 + 1 / max(map(len, groups)))
    return exp(reach), SPREAD.format(100 * deviation, counted(len(runs), "run"))


def _of_size(sizes: Sequence[int], ranks: int) -> list[str]:
    """The doubt of a number of ranks that was not measured."""
    if ranks in sizes:
        return []
    if sizes[0] < ranks < sizes[-1]:
        few, many = next(pair for pair in pairwise(sizes) if ranks < pair[1])
        return [BETWEEN.format(ranks, few, many)]
    words = f"{sizes[0]:,} to {sizes[-1]:,}" if len(sizes) > 1 else f"{sizes[0]:,} alone"
    return [BEYOND.format(ranks, words)]
