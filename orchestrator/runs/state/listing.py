"""Many runs as a table: one row each, and lines below it for what is long or damaged."""

from __future__ import annotations

import time
from collections.abc import Sequence

from orchestrator.base.errors import SiteError
from orchestrator.base.states import State
from orchestrator.base.terminal.columns import EMPTY, Column, TableRow, table
from orchestrator.base.terminal.plain import plain
from orchestrator.network.hosts.hostlist import fold
from orchestrator.network.placement.grid import Grid
from orchestrator.runs.state.pace import short
from orchestrator.runs.state.view import View

COLUMNS = (
    Column("RUN"),
    Column("SITE", left_out=2),
    Column("STATE"),
    Column("AGE", right=True, left_out=3),
    Column("STEP", right=True, left_out=5),
    Column("ETA", right=True, left_out=4),
    Column("LOSS/ACC", right=True, left_out=1),
)
LAST = "WHERE"
UNREMARKABLE = 40  # characters of a COMPLETED run's reason that need no line of their own


def listing(views: Sequence[View], width: int | None, *, long: bool = False) -> list[str]:
    """The table's lines, in `width` columns of a terminal, or uncut; `long` adds job, grid and folder of each run."""
    return table(COLUMNS, LAST, [_row(view, long) for view in views], width)


def _row(view: View, long: bool) -> TableRow:
    notes = [_details(view)] if long else []
    last, instead, told_whole = folded(view.hosts), "", False
    if view.state is not State.RUNNING:
        unremarkable = view.state is State.COMPLETED and len(view.remarks) <= UNREMARKABLE
        last, instead, told_whole = plain(view.remarks), last, not unremarkable
    elif view.remarks:
        notes.append(plain(view.remarks))
    notes += [f"damaged: {plain(text)}" for text in view.damaged]
    return TableRow(_cells(view), last, instead, told_whole, tuple(notes))


def _cells(view: View) -> tuple[str, ...]:
    return (
        plain(view.run),
        view.site or EMPTY,
        view.state.value,
        EMPTY if view.age_s is None else short(view.age_s),
        steps(view) or EMPTY,
        EMPTY if view.eta_s is None else short(view.eta_s),
        result(view) or EMPTY,
    )


def _details(view: View) -> str:
    grid = f"grid {Grid(view.grid)}" if view.grid else "grid auto" if view.grid_reason else "grid unknown"
    day = "%Y-%m-%d %H:%M"
    when = time.strftime(day, time.localtime(view.submitted_s)) if view.submitted_s is not None else "unknown"
    where = f", on {folded(view.hosts)}" if view.hosts else ""
    return plain(f"attempt {view.attempt}, job {view.job or 'unknown'}, submitted {when}, {grid}{where}, {view.folder}")


def steps(view: View) -> str:
    """'120/450', '120' where nobody knows how many there are, '' where there are none."""
    if view.step is None:
        return ""
    return f"{view.step}/{view.total_steps}" if view.total_steps is not None else str(view.step)


def result(view: View) -> str:
    """The newest of loss ('0.314') and accuracy ('97.20%'); '' where there is neither."""
    if view.newest_result == "accuracy" and view.accuracy is not None:
        return percent(view.accuracy)
    return "" if view.loss is None else number(view.loss)


def number(value: float) -> str:
    """A loss as '0.3140', or as '3.1e-05' where that would say nothing; it takes as many columns from step to step."""
    return f"{value:.4f}" if value == 0 or 0.001 <= abs(value) < 1000 else f"{value:.3g}"


def percent(accuracy: float) -> str:
    """A share as '97.20%'. What is larger than 1 was no share, and is shown as it is."""
    return f"{accuracy:.2%}" if abs(accuracy) <= 1 else f"{accuracy:.4g}"


def folded(hosts: Sequence[str]) -> str:
    """'g[0001-0004]'; names that no host list can hold as they are."""
    try:
        return plain(fold(hosts)) if hosts else ""
    except SiteError:
        return plain(",".join(hosts))
