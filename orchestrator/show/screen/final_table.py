"""The table at the end of a run."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shown.numbers import number, percent, thousands
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal import output
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.keys.paths import home
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.run.folder import metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.record import TAIL_BYTES
from torusrun.orchestrator.run.state.view import View

NAME = 13  # columns of the names, if none is longer


def rows(run: RunFolder, view: View) -> list[tuple[str, str]]:
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
    table += [("logs", _short(run.attempt(view.attempt).logs)), ("checkpoints", _short(run.checkpoints))]
    table += [("damaged", text) for text in view.damaged]
    return [(name, plain(value)) for name, value in table]


def _done(run: RunFolder) -> dict[str, Any]:
    """The training's record at its end: its speed over all steps, and its last evaluation."""
    try:
        return metrics.newest(metrics.read(run.metrics, TAIL_BYTES), "done") or {}
    except SiteError:
        return {}


def show(table: list[tuple[str, str]], state: State) -> None:
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
