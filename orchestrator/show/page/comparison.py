"""Several runs in one table: their results, and the settings in which they differ."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.show.page.charts import Drawn
from torusrun.orchestrator.show.page.results import results
from torusrun.orchestrator.show.page.settings import MISSING, differing

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
