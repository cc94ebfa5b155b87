"""The members of a sweep as one table: the settings in which they differ, their states, and their results."""

from __future__ import annotations

import re
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.shown.numbers import duration, number, percent, steps, thousands
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder import ledger, metrics
from torusrun.orchestrator.run.folder.events import Ended, Started, Submitted
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder, number_of
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.view import View
from torusrun.training.recipe.near import did_you_mean
from torusrun.training.reporting.events import COUNTS, DONE, EVAL, STEP

TAIL_BYTES = 65_536  # hundreds of rows: an evaluation, whose result counts, is among them
OF_RESULTS = (STEP, EVAL, DONE)
NO_RESULTS = {*COUNTS, "t", "epoch", "lr", "batch", "time_s", "bytes", "ranks"}


def results(run: RunFolder) -> dict[str, float]:
    """The newest value of every number that a run reported, without its progress; {} if it cannot be read."""
    try:
        rows = metrics.read(run.metrics, TAIL_BYTES)
    except SiteError:
        return {}
    found: dict[str, float] = {}
    for row in rows:
        if row.get("event") in OF_RESULTS:
            numbers = {key: value for key, value in row.items() if type(value) in (int, float)}
            found.update((key, float(value)) for key, value in numbers.items() if key not in NO_RESULTS)
    return found


LONG_NUMBER = re.compile(r"(?=.{11})-?[0-9]+[.][0-9]+(e[+-]?[0-9]+)?")
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
    return Column(plain(key), lambda row: row.settings.get(key), _short)


def _short(text: str) -> str:
    """A setting; a number with many digits, as a study chooses it, has six of them."""
    return f"{float(text):.6g}" if LONG_NUMBER.fullmatch(text) else plain(text)


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
    found = []
    for view in views(members):
        run = RunFolder(Path(view.folder))
        number = number_of(run)
        own = settings[number] if number < len(settings) else {}
        found.append(MemberRow(number, own, view, results(run)))
    return found


HOUR_S = 3600.0


@dataclass(frozen=True)
class Spent:
    """The node-hours of all attempts, and the time from the first begin to the last end, or to now."""

    node_hours: float
    wall_s: float


def spent(members: Sequence[RunFolder], over: Collection[str] = ()) -> Spent | None:
    """What these members have cost; None before one begins. Raises SiteError if a ledger cannot be read.

    `over` are the ids of those that are over. Of an attempt that is LOST no end is known: it counts to its last report.
    """
    uses = [use for run in members for use in _uses(run, run.run_id in over)]
    if not uses:
        return None
    node_s = sum(nodes * (end_s - begin_s) for nodes, begin_s, end_s in uses)
    return Spent(node_s / HOUR_S, max(end_s for _, _, end_s in uses) - min(begin_s for _, begin_s, _ in uses))


def _last_report_s(run: RunFolder) -> float:
    """When the run wrote its metrics last; 0 if it never did."""
    try:
        return run.metrics.stat().st_mtime
    except OSError:
        return 0.0


def _uses(run: RunFolder, over: bool) -> Iterator[tuple[int, float, float]]:
    """The nodes of each attempt, when it began, and when it ended. The newest one may lack an end: it counts to now."""
    events = ledger.events(run.ledger)
    begun = [event for event in events if isinstance(event, Started)]
    ends_s = {event.attempt: event.time_s for event in events if isinstance(event, Ended)}
    for event in begun:
        if event.attempt in ends_s or event is begun[-1]:
            lost = over or any(isinstance(one, Submitted) and one.attempt > event.attempt for one in events)
            until_s = _last_report_s(run) if lost else time.time()
            yield len(event.hosts), event.time_s, max(ends_s.get(event.attempt, until_s), event.time_s)


def cost_lines(sweep: SweepFolder, members: Sequence[RunFolder], over: Collection[str]) -> list[str]:
    """One line, after an empty one; [] before the first member begins. `over` are the ids of members that are over."""
    record, used = sweep.read(), spent(members, over)
    if not used:
        return []
    so_far = f"{used.node_hours:.3g} node-hours in {duration(used.wall_s)}"
    if not record:
        return ["", f"cost so far: {so_far}"]
    most, kept = "at most " if record.cost.by_limits else "", record.cost
    left_out = "the queue" if kept.by_limits or kept.start_s is not None else "the queue, starts and stops"
    expected = f"{most}{kept.node_hours:.3g} in {most}{duration(kept.wall_s)} without {left_out}"
    return ["", f"cost so far: {so_far}; at submit {expected}"]


def cost_as_json(sweep: SweepFolder, members: Sequence[RunFolder], over: Collection[str]) -> dict[str, Any]:
    """Both costs; each is null if it is not known."""
    record, used = sweep.read(), spent(members, over)
    kept = record.cost if record else None
    return {"at_submit": asdict(kept) if kept else None, "so_far": asdict(used) if used else None}


def shown(sweep: SweepFolder, members: Sequence[RunFolder], best: str, width: int | None) -> list[str]:
    """The table of a sweep and its cost, in lines. Raises UserError if no member has reported the metric `best`."""
    rows = rows_of(sweep, members)
    over = {row.view.run for row in rows if row.view.state.over}
    ordered = ranked(rows, goal(best, rows)) if best else rows
    return [*table(ordered).lines(width), *cost_lines(sweep, members, over)]


def shown_as_json(sweep: SweepFolder, members: Sequence[RunFolder], best: str) -> dict[str, Any]:
    """The views of the members, the same rows as in `shown`, and the cost. Raises as `shown` does."""
    rows = rows_of(sweep, members)
    over = {row.view.run for row in rows if row.view.state.over}
    ordered = ranked(rows, goal(best, rows)) if best else rows
    return {
        "schema": 1,
        "runs": [row.view.as_json() for row in rows],
        "sweep": sweep.sweep_id,
        "members": as_json(ordered),
        "cost": cost_as_json(sweep, members, over),
    }
