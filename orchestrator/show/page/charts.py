"""The curves of runs: loss, accuracy, throughput, learning rate and batch."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from torusrun.orchestrator.show.page.chart import Chart, ChartLine
from torusrun.orchestrator.show.page.facts import RunFacts
from torusrun.orchestrator.show.page.series import Point, Row, Series, by_attempt, series, thinned

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
