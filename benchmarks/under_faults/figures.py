"""Faults at random times, the bound that Daly's formula gives, and figures in a table: pure functions."""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

SEARCHED = 200  # intervals between checkpoints, for the best one


@dataclass(frozen=True)
class Arrival:
    """A fault at `at_s` after the begin of a measurement; it strikes `rank`."""

    at_s: float
    rank: int


def arrivals(seed: int, mean_s: float, duration_s: float, ranks: int) -> Iterator[Arrival]:
    """Faults of a Poisson process with this mean time between them, as a function of the seed alone."""
    source, at_s = random.Random(seed), 0.0
    while (at_s := at_s + source.expovariate(1 / mean_s)) < duration_s:
        yield Arrival(at_s, source.randrange(ranks))


def best_interval_s(checkpoint_s: float, mean_s: float) -> float:
    """The best time between checkpoints that take `checkpoint_s`, for faults with a mean time of `mean_s`.

    Source: J. T. Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
    Generation Computer Systems 22 (2006), equation 37.
    """
    if checkpoint_s >= 2 * mean_s:
        return mean_s
    ratio = checkpoint_s / (2 * mean_s)
    return math.sqrt(2 * checkpoint_s * mean_s) * (1 + math.sqrt(ratio) / 3 + ratio / 9) - checkpoint_s


def expected_ettr(interval_s: float, checkpoint_s: float, restart_s: float, mean_s: float) -> float:
    """The expected share of the time that computes steps that count, for a checkpoint every `interval_s` of steps.

    `restart_s` is the time from a fault to the next step. Source: as above, equation 20: a fault may also come during
    a restart or a checkpoint.
    """
    wall_s = mean_s * math.exp(restart_s / mean_s) * math.expm1((interval_s + checkpoint_s) / mean_s)
    return interval_s / wall_s


def bound(checkpoint_s: float, restart_s: float, mean_s: float, least_s: float) -> float:
    """The largest expected ETTR over all times between checkpoints of at least `least_s`, the time of a step."""
    checkpoint_s = max(checkpoint_s, 1e-9)
    around_s = max(best_interval_s(checkpoint_s, mean_s), least_s)
    tried_s = [around_s * 2 ** (4 * n / SEARCHED - 2) for n in range(SEARCHED + 1)]
    return max(expected_ettr(max(t, least_s), checkpoint_s, restart_s, mean_s) for t in tried_s)


def undisturbed_step_s(steps: Sequence[tuple[float, float]], every: int) -> float:
    """The mean time of the steps without a fault, a restart or a checkpoint, of rows (seconds, step) in order of time.

    A checkpoint follows `every` steps. A time above three medians is a disturbance.
    """
    pairs = [(b[0] - a[0], b[1]) for a, b in zip(steps, steps[1:], strict=False) if b[1] == a[1] + 1]
    median_s = statistics.median(took_s for took_s, _ in pairs)
    return statistics.mean(took_s for took_s, step in pairs if took_s <= 3 * median_s and (step - 1) % every)


def of(values: Sequence[float | None], digits: int = 1) -> str:
    """The median and the worst of what was measured, as '1.2 (3.4)'; '-' if nothing was."""
    found = [value for value in values if value is not None]
    return f"{statistics.median(found):.{digits}f} ({max(found):.{digits}f})" if found else "-"


def share(value: float | None) -> str:
    return "-" if value is None else f"{value:.1%}"


def markdown(titles: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """A table in Markdown."""
    lines = [titles, ["---"] * len(titles), *rows]
    return "\n".join("| " + " | ".join(str(cell) for cell in line) + " |" for line in lines)
