"""The curves of runs, from those rows of their metrics that count."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from torusrun.orchestrator.show.page.drawing import Chart, ChartLine
from torusrun.orchestrator.show.page.facts import RunFacts
from torusrun.training.reporting import events

COLUMNS = 240  # parts of the x axis, in each of which a curve of many points shows a single point
LEAST_POINTS = 2

Row = Mapping[str, Any]
Point = tuple[float, float]


@dataclass(frozen=True)
class Series:
    """The step rows and the evaluations of a run that count, in order."""

    steps: Sequence[Row]
    evaluations: Sequence[Row]
    of_roles: Sequence[Row] = ()  # of services, in the order of time

    @cached_property
    def unit(self) -> str:
        """The unit of progress: 'samples', or 'steps' for a program that reports no samples."""
        rows = (*self.steps, *self.evaluations)
        return "samples" if rows and all(row.get("samples") is not None for row in rows) else "steps"

    def points(self, rows: Sequence[Row], key: str) -> list[Point]:
        """(progress, value) of a key in the rows that have it."""
        if rows is self.of_roles:
            return sorted((self._progress(row["step"]), float(row[key])) for row in rows if row.get(key) is not None)
        at = "samples" if self.unit == "samples" else "step"
        return [(float(row[at]), float(row[key])) for row in rows if row.get(key) is not None]

    def _progress(self, step: int) -> float:
        """The progress at a step, by the nearest row of the training."""
        if self.unit == "steps":
            return float(step)
        near = min((*self.steps, *self.evaluations), key=lambda row: abs(row["step"] - step))
        return near["samples"] * step / near["step"] if near["step"] else 0.0


def series(rows: Iterable[Row]) -> Series:
    """The rows that count: if an attempt repeats steps after a resume, those of earlier attempts are left out."""
    steps: list[Row] = []
    evaluations: list[Row] = []
    of_roles: list[Row] = []
    for row in rows:
        if row.get("step") is None or row.get("t") is None:
            continue
        if row["event"] == events.ROLE:
            of_roles.append(row)
            continue
        for kept in (steps, evaluations):
            _drop(kept, row)
        is_result = row.get("accuracy") is not None or row.get("test_loss") is not None
        if row["event"] == events.STEP:
            steps.append(row)
        elif is_result and not (evaluations and evaluations[-1]["step"] == row["step"]):
            evaluations.append(row)  # but not the end of the training, which repeats the last evaluation
    return Series(steps, evaluations, of_roles)


def _drop(kept: list[Row], row: Row) -> None:
    """Drop the rows of earlier attempts that this row's attempt computes again."""
    least = row["step"] + (row["event"] == events.START)
    while kept and kept[-1].get("attempt") != row.get("attempt") and kept[-1]["step"] >= least:
        kept.pop()


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
    parts = [(fmean(x for x, _ in group), [y for _, y in group]) for _, group in sorted(groups.items())]
    return Thinned([(x, fmean(ys)) for x, ys in parts], [(x, min(ys), max(ys)) for x, ys in parts])


@dataclass(frozen=True)
class Drawn:
    """A run with its letter ('' for a single run) and the rows that count."""

    letter: str
    facts: RunFacts
    series: Series


def charts(runs: Sequence[Drawn]) -> list[Chart]:
    """The charts that have something to show."""
    units = {run.series.unit for run in runs if run.series.steps or run.series.evaluations}
    unit = "samples" if units == {"samples"} else "steps"
    made = (
        Chart("Loss", unit, [*_losses(runs)]),
        Chart("Accuracy", unit, [*_accuracies(runs)], show=lambda share: f"{share * 100:.4g}%"),
        Chart("Throughput, images/s", unit, [*_rates(runs)], from_zero=True),
    )
    return [chart for chart in made if chart.lines]


def _losses(runs: Sequence[Drawn]) -> Iterator[ChartLine]:
    """The training loss; of a single run also the loss on the test set."""
    for number, run in enumerate(runs):
        yield from _line(run.letter or "train", run, number, run.series.steps, "loss")
        if not run.letter:
            yield from _line("test", run, 1, run.series.evaluations, "test_loss")
            yield from _of_roles(run, "loss")


def _accuracies(runs: Sequence[Drawn]) -> Iterator[ChartLine]:
    for number, run in enumerate(runs):
        yield from _line(run.letter or "top 1", run, number, run.series.evaluations, "accuracy")
        if not run.letter:
            yield from _line("top 5", run, 1, run.series.evaluations, "top5")
            yield from _of_roles(run, "accuracy")


def _of_roles(run: Drawn, key: str) -> Iterator[ChartLine]:
    """The lines of the numbers of services with this name, as evaluate/accuracy."""
    names = dict.fromkeys(name for row in run.series.of_roles for name in row if name.endswith(f"/{key}"))
    for number, name in enumerate(names):
        yield from _line(name, run, 2 + number, run.series.of_roles, name)


def _rates(runs: Sequence[Drawn]) -> Iterator[ChartLine]:
    for number, run in enumerate(runs):
        yield from _line(run.letter, run, number, run.series.steps, "images_per_s")


def _line(name: str, run: Drawn, number: int, rows: Sequence[Row], key: str) -> Iterator[ChartLine]:
    """The line of a key; none of fewer than LEAST_POINTS points."""
    points = run.series.points(rows, key)
    if len(points) >= LEAST_POINTS:
        shown = thinned(points)
        yield ChartLine(name, shown.points, number, rows is not run.series.steps, shown.band)
