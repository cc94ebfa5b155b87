"""The members of a sweep as one table: the settings in which they differ, their states, and their results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.shown.numbers import number, percent, steps, thousands
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder, number_of
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.view import View
from torusrun.training.recipe.near import did_you_mean
from torusrun.training.reporting.events import COUNTS, DONE, EVAL, ROLE, STEP

TAIL_BYTES = 65_536  # hundreds of rows: an evaluation, whose result counts, is among them
OF_RESULTS = (STEP, EVAL, ROLE, DONE)
NO_RESULTS = {*COUNTS, "t", "epoch", "lr", "batch", "time_s", "bytes", "ranks"}


def results(run: RunFolder) -> dict[str, float]:
    """The newest value of every number that a run reported, without its progress; {} if it cannot be read."""
    try:
        rows = metrics.read(run.metrics, TAIL_BYTES)
    except SiteError:
        return {}
    values: dict[str, float] = {}
    for row in rows:
        if row.get("event") in OF_RESULTS:
            numbers = {key: value for key, value in row.items() if type(value) in (int, float)}
            values.update((key, float(value)) for key, value in numbers.items() if key not in NO_RESULTS)
    return values


SHOWN = {"accuracy": percent, "top5": percent, "images_per_s": thousands}
LARGER_IS_BETTER = {"accuracy": True, "top5": True, "images_per_s": True, "loss": False, "test_loss": False}


@dataclass(frozen=True)
class MemberRow:
    """A member: its number, its settings, its view, and the newest value of each of its metrics."""

    number: int
    settings: Mapping[str, str]
    view: View
    results: Mapping[str, float]


@dataclass(frozen=True)
class Goal:
    """The metric by which members are compared, and whether a larger value is better."""

    metric: str
    larger: bool


def goal(text: str, rows: Sequence[MemberRow]) -> Goal:
    """The goal in 'accuracy', or in 'max:NAME' and 'min:NAME' for any metric. Raises UserError if it is not known."""
    order, colon, metric = text.rpartition(":")
    known = list(dict.fromkeys(name for row in rows for name in row.results))
    if metric not in known:
        hint = did_you_mean(metric, known)
        raise UserError(f"--best: no member has reported {metric!r}{hint} (reported: {', '.join(known) or 'nothing'})")
    if colon and order in ("max", "min"):
        return Goal(metric, order == "max")
    if colon or metric not in LARGER_IS_BETTER:
        raise UserError(f"--best: write max:{metric} or min:{metric}: it is not known which {metric!r} is better")
    return Goal(metric, LARGER_IS_BETTER[metric])


def ranked(rows: Sequence[MemberRow], by: Goal) -> list[MemberRow]:
    """The rows, the best first; those without the metric come last, in their order."""
    known = [row for row in rows if by.metric in row.results]
    known.sort(key=lambda row: row.results[by.metric], reverse=by.larger)
    return [*known, *(row for row in rows if by.metric not in row.results)]


def table(rows: Sequence[MemberRow]) -> Table[MemberRow]:
    keys = dict.fromkeys(key for row in rows for key in row.settings)
    metrics = dict.fromkeys(name for row in rows for name in row.results)
    return Table(
        [
            Column("MEMBER", lambda row: row.number, key="member"),
            *map(_setting, keys),
            Column("STATE", lambda row: row.view.state.value, right=False, style=lambda row: row.view.state.colour),
            Column("STEP", lambda row: steps(row.view.step, row.view.total_steps), right=True, left_out=2),
            *map(_result, metrics),
        ],
        rows,
    )


def _setting(key: str) -> Column[MemberRow]:
    return Column(plain(key), lambda row: row.settings.get(key), plain)


def _result(metric: str) -> Column[MemberRow]:
    show = SHOWN.get(metric, number)
    left_out = None if metric in LARGER_IS_BETTER else 1
    return Column(plain(metric).upper(), lambda row: row.results.get(metric), show, right=True, left_out=left_out)


def as_json(rows: Sequence[MemberRow]) -> list[dict[str, Any]]:
    """A record for each member, with its settings and its results by their names."""
    return [
        {
            "member": row.number,
            "run": row.view.run,
            "settings": dict(row.settings),
            "state": row.view.state.value,
            "reason": row.view.reason,
            "attempt": row.view.attempt,
            "step": row.view.step,
            "results": dict(row.results),
        }
        for row in rows
    ]


def rows_of(sweep: SweepFolder, members: Sequence[RunFolder]) -> list[MemberRow]:
    """A row for each of these members. It queries the scheduler if necessary. Raises SiteError for a damaged sweep."""
    settings = sweep.settings()
    rows = []
    for view in views(members):
        run = RunFolder(Path(view.folder))
        number = number_of(run)
        own = settings[number] if number < len(settings) else {}
        rows.append(MemberRow(number, own, view, results(run)))
    return rows


def shown(sweep: SweepFolder, members: Sequence[RunFolder], best: str, width: int | None) -> list[str]:
    """The table of a sweep in lines. Raises UserError if no member has reported the metric `best`."""
    rows = rows_of(sweep, members)
    return table(ranked(rows, goal(best, rows)) if best else rows).lines(width)


def shown_as_json(sweep: SweepFolder, members: Sequence[RunFolder], best: str) -> dict[str, Any]:
    """The views of the members, and the same rows as in `shown`. Raises as `shown` does."""
    rows = rows_of(sweep, members)
    ordered = ranked(rows, goal(best, rows)) if best else rows
    return {
        "schema": 1,
        "runs": [row.view.as_json() for row in rows],
        "sweep": sweep.sweep_id,
        "members": as_json(ordered),
    }
