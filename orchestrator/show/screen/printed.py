"""Runs without a screen: a line for each change, now and then for each run at work, and the table at its end."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shown.numbers import number, percent, steps, thousands
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal import output
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.terminal.remarks import progress
from torusrun.orchestrator.keys.paths import home
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.follow import follow_all
from torusrun.orchestrator.run.state.pace import short
from torusrun.orchestrator.run.state.record import TAIL_BYTES
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.listing import forecast
from torusrun.orchestrator.show.logs.files import newest_line

LINE_EVERY_S = 10.0
LINES_PER_S = 1.0  # of all runs together, besides lines about changes


def show(runs: Sequence[RunFolder]) -> list[View]:
    """Follow the runs to their ends, with lines on stderr now and then; returns their last views."""
    printed: dict[str, State] = {}
    due_s = 0.0
    for views in follow_all(runs):
        at_work = [view for view in views if not view.state.over]
        due = time.monotonic() >= due_s
        if due:
            due_s = time.monotonic() + max(LINE_EVERY_S, len(at_work) / LINES_PER_S)
        for run, view in zip(runs, views, strict=True):
            if printed.get(view.folder) is not view.state or (due and not view.state.over):
                printed[view.folder] = view.state
                progress(words(view, newest_output(run, view)))
    return views


def newest_output(run: RunFolder, view: View) -> str:
    """The newest line of rank 0's log, for a run without steps; otherwise ''."""
    return newest_line(run.attempt(view.attempt).rank_log(0)) if view.step is None else ""


def words(view: View, newest: str) -> str:
    """One line for a log: all figures, not cut, and the remarks on a run that is not over.

    `newest` is the newest line of rank 0's log, for a run without steps.
    """
    rest = remark(view, newest) if view.step is None else "" if view.state.over else plain(view.remarks)
    parts = ", ".join(filter(None, [*figures(view).values(), rest]))
    return f"{plain(view.run)} {view.state.value} {parts}".rstrip()


def remark(view: View, newest: str) -> str:
    """The remark on a run without steps: why it has none, its newest output, or that it writes nothing."""
    return plain("; ".join(filter(None, (view.reason, view.waiting)))) or newest or plain(view.pause)


def figures(view: View) -> dict[str, str]:
    """The known figures of a run's progress, each in a few words, in the order of display."""
    at_work = view.state in (State.PENDING, State.RUNNING, State.UNKNOWN)
    known = {
        "step": None if view.step is None else f"step {steps(view.step, view.total_steps)}",
        "eta": None if view.eta_s is None else f"ETA {short(view.eta_s)}",
        "forecast": forecast(view),
        "loss": None if view.loss is None else f"loss {number(view.loss)}",
        "speed": None if view.images_per_s is None or view.state.over else f"{thousands(view.images_per_s)} images/s",
        "accuracy": None if view.accuracy is None else f"accuracy {percent(view.accuracy)}",
        **{name: f"{name} {value}" for name, value in _of_roles(view)},
        "age": f"age {short(view.age_s)}" if view.age_s is not None and at_work else None,
    }
    return {name: text for name, text in known.items() if text}


def _of_roles(view: View) -> list[tuple[str, str]]:
    """The newest numbers of services, as (name, value)."""
    shown = {True: percent, False: number}
    return [(plain(name), shown[name.endswith("/accuracy")](value)) for name, value in view.of_roles.items()]


NAME = 13  # columns of the names, if none is longer


def end_rows(run: RunFolder, view: View) -> list[tuple[str, str]]:
    """The facts of a run and of its end, as (name, value)."""
    table = [("run", view.run), ("state", f"{view.state.value}: {view.reason}" if view.reason else view.state.value)]
    if view.grid or view.grid_reason:
        grid = " x ".join(map(str, view.grid or ())) or "auto"
        table.append(("grid", f"{grid}: {view.grid_reason}" if view.grid_reason else grid))
    if view.ranks:
        table.append(("ranks", f"{view.ranks} on {folded(view.hosts) or 'no hosts yet'}"))
    if view.step is not None:
        of = f" of {view.total_steps}" if view.total_steps is not None else ""
        table.append(("steps", f"{view.step}{of}, attempt {view.attempt}"))
    if view.network:
        table.append(("network", view.slow_network or view.network))
    if view.loss is not None:
        table.append(("loss", number(view.loss)))
    done = _done(run)
    if speed := done.get("images_per_s") or view.images_per_s:
        table.append(("images/s", thousands(speed)))
    if view.accuracy is not None:
        top5 = "" if done.get("top5") is None else f" (top 5: {percent(done['top5'])})"
        table.append(("test accuracy", f"{percent(view.accuracy)}{top5}"))
    if (ensemble := done.get("ensemble")) is not None and (best := done.get("best_member")) is not None:
        members = f"{len(done.get('members', ()))} members, the best has {percent(best)}"
        table.append(("ensemble", f"{percent(ensemble)} ({members})"))
    table += _of_roles(view)
    table += [("logs", _short(run.attempt(view.attempt).logs)), ("checkpoints", _short(run.checkpoints))]
    table += [("damaged", text) for text in view.damaged]
    return [(name, plain(value)) for name, value in table]


def _done(run: RunFolder) -> dict[str, Any]:
    """The training's record at its end: its speed over all steps, and its last evaluation."""
    try:
        return metrics.newest(metrics.read(run.metrics, TAIL_BYTES), "done") or {}
    except SiteError:
        return {}


def show_table(table: list[tuple[str, str]], state: State) -> None:
    """Print the table of a run; on a terminal, long values are folded in their column."""
    if output.drawable(sys.stdout):
        return _drawn(table, state)
    width = max(NAME, *(len(name) for name, _ in table))
    for name, value in table:
        print(f"{name:{width}}  {value}")


def _drawn(table: list[tuple[str, str]], state: State) -> None:
    from rich.table import Column, Table
    from rich.text import Text

    grid = Table.grid(Column(no_wrap=True, style="bold"), Column(overflow="fold"), padding=(0, 2, 0, 0))
    for name, value in table:
        grid.add_row(name, Text(value, state.colour if name == "state" else ""))
    output.console().print(grid)


def _short(path: Path) -> str:
    """A path with ~ for the home folder."""
    return f"~/{path.relative_to(home())}" if path.is_relative_to(home()) else str(path)
