"""Points for curves from the metrics of a run: only rows that count, and not more than a picture can show."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from torusrun.training.reporting import events

COLUMNS = 240  # parts of the x axis, for each of which a curve of many points shows one

Row = Mapping[str, Any]
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """The step rows and the evaluations of a run that count, in order. `begun_s` is the time of its submission."""

    steps: Sequence[Row]
    evaluations: Sequence[Row]
    begun_s: float

    @cached_property
    def unit(self) -> str:
        """The unit of progress: 'samples', or 'steps' for a program that reports no samples."""
        rows = (*self.steps, *self.evaluations)
        return "samples" if rows and all(row.get("samples") is not None for row in rows) else "steps"

    def progress(self, row: Row) -> float:
        return float(row["samples" if self.unit == "samples" else "step"])

    def seconds(self, row: Row) -> float:
        return max(float(row["t"]) - self.begun_s, 0.0)

    def batches(self) -> list[Point]:
        """(progress, samples in a step), from neighbouring rows of one attempt."""
        pairs = zip(self.steps, self.steps[1:], strict=False)
        same = [(one, two) for one, two in pairs if one.get("attempt") == two.get("attempt")]
        if self.unit != "samples":
            return []
        return [
            (self.progress(two), round((two["samples"] - one["samples"]) / (two["step"] - one["step"])))
            for one, two in same
            if two["step"] > one["step"]
        ]


def series(rows: Iterable[Row], begun_s: float) -> Series:
    """The rows that count: if an attempt repeats steps after a resume, those of earlier attempts are left out."""
    steps: list[Row] = []
    evaluations: list[Row] = []
    for row in rows:
        if row.get("step") is None or row.get("t") is None:
            continue
        for kept in (steps, evaluations):
            _drop(kept, row)
        if row["event"] == events.STEP:
            steps.append(row)
        elif _is_result(row) and not (evaluations and evaluations[-1]["step"] == row["step"]):
            evaluations.append(row)  # but not the end of the training, which repeats the last evaluation
    return Series(steps, evaluations, begun_s)


def _is_result(row: Row) -> bool:
    return row.get("accuracy") is not None or row.get("test_loss") is not None


def _drop(kept: list[Row], row: Row) -> None:
    """Drop the rows of earlier attempts that this row's attempt computes again."""
    least = row["step"] + (row["event"] == events.START)
    while kept and kept[-1].get("attempt") != row.get("attempt") and kept[-1]["step"] >= least:
        kept.pop()


def by_attempt(rows: Sequence[Row]) -> list[list[Row]]:
    """The rows in groups of neighbours of one attempt."""
    groups: list[list[Row]] = []
    for row in rows:
        if not groups or groups[-1][-1].get("attempt") != row.get("attempt"):
            groups.append([])
        groups[-1].append(row)
    return groups


@dataclass(frozen=True)
class Thinned:
    """Points that a picture can show; `band` has (x, smallest, largest) of what each of them stands for, or nothing."""

    points: Sequence[Point]
    band: Sequence[tuple[float, float, float]] = ()


def thinned(points: Sequence[Point], columns: int = COLUMNS) -> Thinned:
    """The points; of more than two per column, the mean of those in each of `columns` equal parts of x."""
    if len(points) <= 2 * columns:
        return Thinned(points)
    first, last = min(x for x, _ in points), max(x for x, _ in points)
    groups: dict[int, list[Point]] = {}
    for x, y in points:
        share = (x - first) / (last - first) if last > first else 0.0
        groups.setdefault(min(int(share * columns), columns - 1), []).append((x, y))
    found = [(fmean(x for x, _ in group), [y for _, y in group]) for _, group in sorted(groups.items())]
    return Thinned([(x, fmean(ys)) for x, ys in found], [(x, min(ys), max(ys)) for x, ys in found])
