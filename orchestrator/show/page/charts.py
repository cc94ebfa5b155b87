"""The curves of runs, from those rows of their metrics that count, and not more than a picture can show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean
from typing import Any

from torusrun.orchestrator.show.page.chart import Chart, ChartLine
from torusrun.orchestrator.show.page.facts import RunFacts
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


LEAST_POINTS = 2
SINCE, SINCE_STARTS = "since submission", "since each began"
Place = Callable[[Row], float]


@dataclass(frozen=True)
class Drawn:
    """A run with its letter ('' for a single run) and the rows that count."""

    letter: str
    facts: RunFacts
    series: Series

    def name(self, of_one: str) -> str:
        """The name of a line: the letter of the run, or `of_one` on a page about one run."""
        return self.letter or of_one


def drawn(facts: RunFacts, *, alone: bool) -> Drawn:
    """A run without a letter. Over time, one that is `alone` begins at its submission, and others at their starts."""
    found = facts.account.attempts if facts.account else ()
    times = [one.submitted_s if alone else one.begun_s for one in found]
    reported = [row["t"] for row in facts.rows if row.get("t") is not None]
    begun_s = next((time_s for time_s in times if time_s is not None), min(reported, default=0.0))
    return Drawn("", facts, series(facts.rows, begun_s))


def charts(runs: Sequence[Drawn]) -> list[Chart]:
    """The charts that have something to show."""
    units = {run.series.unit for run in runs if run.series.steps or run.series.evaluations}
    unit = "samples" if units == {"samples"} else "steps"
    since = SINCE_STARTS if any(run.letter for run in runs) else SINCE
    found = [
        _chart("Loss", unit, _losses(runs), may_be_log=True),
        _chart("Accuracy", unit, _accuracies(runs), show=_percent),
        _chart("Throughput, images/s", unit, _rates(runs), from_zero=True),
        _chart("Loss over time", since, _losses(runs, times=True), times=True, may_be_log=True),
        _chart("Accuracy over time", since, _accuracies(runs, times=True), times=True, show=_percent),
        _chart("Learning rate", unit, _learning_rates(runs), from_zero=True),
        _chart("Batch, samples in a step", unit, _batches(runs), from_zero=True),
    ]
    return [chart for chart in found if chart]


def _chart(title: str, unit: str, lines: Iterator[ChartLine], **how: object) -> Chart | None:
    whole = [line for line in lines if sum(map(len, line.groups)) >= LEAST_POINTS or line.style == "predicted"]
    measured = [line for line in whole if line.style != "predicted"]
    return Chart(title, unit, whole, **how) if measured else None  # type: ignore[arg-type]


def _line(
    name: str, run: Drawn, number: int, rows: Sequence[Row], key: str, *, times: bool = False, style: str = "solid"
) -> ChartLine:
    """The values of a key. Over time, the line is broken where an attempt ends."""
    place = run.series.seconds if times else run.series.progress
    groups = by_attempt(rows) if times else [list(rows)]
    found = [thinned(points) for group in groups if (points := _points(group, place, key))]
    return ChartLine(name, [each.points for each in found], number, style, [each.band for each in found if each.band])


def _points(rows: Sequence[Row], place: Place, key: str) -> list[Point]:
    return [(place(row), float(row[key])) for row in rows if row.get(key) is not None]


def _losses(runs: Sequence[Drawn], *, times: bool = False) -> Iterator[ChartLine]:
    """The training loss; of a single run also the loss on the test set."""
    for number, run in enumerate(runs):
        yield _line(run.name("train"), run, number, run.series.steps, "loss", times=times)
        if not run.letter:
            yield _line("test", run, 1, run.series.evaluations, "test_loss", times=times, style="dots")


def _accuracies(runs: Sequence[Drawn], *, times: bool = False) -> Iterator[ChartLine]:
    for number, run in enumerate(runs):
        has_top5 = not run.letter and any(row.get("top5") is not None for row in run.series.evaluations)
        name = run.name("top 1" if has_top5 else "test")
        yield _line(name, run, number, run.series.evaluations, "accuracy", times=times, style="dots")
        if has_top5:
            yield _line("top 5", run, 1, run.series.evaluations, "top5", times=times, style="dots")


def _rates(runs: Sequence[Drawn]) -> Iterator[ChartLine]:
    for number, run in enumerate(runs):
        rate = run.facts.predicted_images_per_s
        line = _line(run.name("" if rate is None else "measured"), run, number, run.series.steps, "images_per_s")
        yield line
        if rate is not None and line.groups:
            ends = line.groups[0][0][0], line.groups[-1][-1][0]
            yield ChartLine(f"{run.letter} predicted".strip(), [[(x, rate) for x in ends]], number, "predicted")


def _learning_rates(runs: Sequence[Drawn]) -> Iterator[ChartLine]:
    """The learning rate, if it changes during a run."""
    if all(len({row.get("lr") for row in run.series.steps}) < 2 for run in runs):
        return
    for number, run in enumerate(runs):
        yield _line(run.letter, run, number, run.series.steps, "lr")


def _batches(runs: Sequence[Drawn]) -> Iterator[ChartLine]:
    """The batch, if it changes during a run."""
    found: Mapping[int, list[Point]] = {number: run.series.batches() for number, run in enumerate(runs)}
    if all(len({batch for _, batch in points}) < 2 for points in found.values()):
        return
    for number, points in found.items():
        if points:
            yield ChartLine(runs[number].letter, [thinned(points).points], number)


def _percent(share: float) -> str:
    return f"{share * 100:.4g}%"
