"""The main figures of a run, each with what it was measured on, and several runs in one table."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from statistics import median

from torusrun.orchestrator.base.shown.numbers import duration, number, percent, thousands
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.show.account import forecast_line
from torusrun.orchestrator.show.page.charts import Drawn, Row
from torusrun.orchestrator.show.page.settings import MISSING, differing
from torusrun.training.counted import counted


@dataclass(frozen=True)
class Figure:
    """A figure: its name, its value, and what it is."""

    name: str
    value: str
    note: str


def results(run: Drawn) -> list[Figure]:
    """The known figures, in the order of display."""
    return [*_accuracy(run), *_loss(run), *_throughput(run), *_time(run)]


def _accuracy(run: Drawn) -> Iterator[Figure]:
    found = [row for row in run.series.evaluations if row.get("accuracy") is not None]
    if found:
        newest, best = found[-1], max(found, key=lambda row: row["accuracy"])
        of_best = "" if best["accuracy"] == newest["accuracy"] else f"; best {percent(best['accuracy'])}, {_at(best)}"
        top5 = f"; top 5 {percent(newest['top5'])}" if newest.get("top5") is not None else ""
        yield Figure("accuracy", percent(newest["accuracy"]), f"test set, {_at(newest)}{of_best}{top5}")


def _loss(run: Drawn) -> Iterator[Figure]:
    found = [row for row in run.series.steps if row.get("loss") is not None]
    if found:
        tested = [row for row in run.series.evaluations if row.get("test_loss") is not None]
        of_test = f"; test set {number(tested[-1]['test_loss'])}" if tested else ""
        yield Figure("loss", number(found[-1]["loss"]), f"training, {_at(found[-1])}{of_test}")


def _throughput(run: Drawn) -> Iterator[Figure]:
    found = [row["images_per_s"] for row in run.series.steps if row.get("images_per_s")]
    if found:
        rate = run.facts.predicted_images_per_s
        predicted = f"; predicted {thousands(rate)}" if rate is not None else ""
        note = f"median of {counted(len(found), 'report')}{predicted}"
        yield Figure("throughput", f"{thousands(median(found))} images/s", note)


def _time(run: Drawn) -> Iterator[Figure]:
    account = run.facts.account
    if account and account.total_s > 0:
        share = f", {account.since_submit:.1%} productive" if account.since_submit else ""
        until = "submission to end" if run.facts.view.state.over else "since submission"
        forecast = f"; {line}" if (line := forecast_line(account)) else ""
        yield Figure("time", duration(account.total_s), f"{until}{share}{forecast}")


def _at(row: Row) -> str:
    return f"step {thousands(row['step'])}"


LARGER_IS_BETTER = {"accuracy": True, "loss": False}  # the first that a run has reported counts


@dataclass(frozen=True)
class ComparedRun:
    """A line of the table; `letter` is '' for a run that is not drawn."""

    letter: str
    number: int
    name: str
    state: str
    results: list[str]
    settings: list[str]


@dataclass(frozen=True)
class SideBySide:
    """`results` and `settings` are the titles of the columns; `what` is 'run', or 'member' if all are of one sweep."""

    title: str
    what: str
    results: list[str]
    settings: list[str]
    runs: list[ComparedRun]


def comparison(runs: Sequence[Drawn]) -> SideBySide | None:
    """The table of these runs; None for a single run."""
    if len(runs) < 2:
        return None
    sweep = _sweep(runs)
    found = [{figure.name: figure.value for figure in results(run)} for run in runs]
    names = list(dict.fromkeys(name for figures in found for name in figures))
    settings = differing([run.facts for run in runs])
    compared = [
        ComparedRun(
            run.letter,
            number,
            plain(run.facts.view.run.removeprefix(f"{sweep}.")),
            run.facts.view.state.value,
            [figures.get(name, MISSING) for name in names],
            [values[number] for _, values in settings],
        )
        for number, (run, figures) in enumerate(zip(runs, found, strict=True))
    ]
    title = f"{plain(sweep)}: {len(runs)} members" if sweep else f"{len(runs)} runs compared"
    return SideBySide(title, "member" if sweep else "run", names, [key for key, _ in settings], compared)


def _sweep(runs: Sequence[Drawn]) -> str:
    """The id of the sweep of which all these runs are members, or ''."""
    names = [run.facts.view.run.rpartition(".") for run in runs]
    sweeps = {sweep for sweep, _, number in names if number.isdecimal()}
    return sweeps.pop() if len(sweeps) == 1 and all(number.isdecimal() for *_, number in names) else ""


def best_first(runs: Sequence[Drawn]) -> tuple[list[Drawn], str]:
    """(The runs by their last accuracy, or by their last loss; 'accuracy', 'loss' or ''). Others keep their order."""
    for metric, larger in LARGER_IS_BETTER.items():
        known = [(value, run) for run in runs if (value := _last(run, metric)) is not None]
        if known:
            known.sort(key=lambda one: one[0], reverse=larger)
            return [*(run for _, run in known), *(run for run in runs if _last(run, metric) is None)], metric
    return list(runs), ""


def _last(run: Drawn, metric: str) -> float | None:
    """The newest value of accuracy or loss."""
    rows = run.series.evaluations if metric == "accuracy" else run.series.steps
    return next((float(row[metric]) for row in reversed(rows) if row.get(metric) is not None), None)
