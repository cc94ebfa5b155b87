"""Many runs as a table: one row for each, with lines below it for long and damaged values."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.shown.numbers import number, percent, with_bounds
from torusrun.orchestrator.base.shown.table import Column, Long, Table
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.colours import of
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.place.hosts.folded import folded
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.state.account import Account
from torusrun.orchestrator.run.state.pace import duration, short
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.show.account import account_lines
from torusrun.orchestrator.sweeps.sweep_line import SweepView

if TYPE_CHECKING:  # most tables have none
    from torusrun.orchestrator.run.state.due import Due

UNREMARKABLE = 40  # characters of a COMPLETED run's reason that need no separate line


def listing(
    views: Sequence[View],
    *,
    long: bool = False,
    accounts: Mapping[str, Account] | None = None,
    due: Mapping[str, Due] | None = None,
    width: int | None = None,
) -> Table[View]:
    """The table of the runs; `long` adds a line with job, grid and folder below each.

    Below a run that is `due`, by the ids of runs, is when it begins and ends. Below a run that has one of the
    `accounts` are its attempts and its times, in this `width`.
    """
    found, expected = accounts or {}, due or {}

    def notes(view: View) -> list[str]:
        of_run = account_lines(found[view.run], width) if view.run in found else ()
        begins = [due_line(expected[view.run], view.scheduler)] if view.run in expected else []
        return [*([_details(view)] if long else []), *begins, *_notes(view), *of_run]

    return Table(COLUMNS, views, notes)


def steps(view: View) -> str | None:
    """'120/450', or '120' if the number of steps is unknown; None without steps."""
    if view.step is None:
        return None
    return f"{view.step}/{view.total_steps}" if view.total_steps is not None else str(view.step)


def forecast(view: View) -> str:
    """'forecast 3.1 h [2.9, 3.5]': what was predicted at submit for all steps of a run that is not over; else ''."""
    return f"forecast {with_bounds(view.forecast_s[0], view.forecast_s[1:])}" if view.forecast_s else ""


def result(view: View) -> str | None:
    """The newest of loss ('0.314') and accuracy ('97.20%'); None if both are missing."""
    if view.newest_result == "accuracy" and view.accuracy is not None:
        return percent(view.accuracy)
    return None if view.loss is None else number(view.loss)


def _where(view: View) -> Long:
    """The hosts of a running run; otherwise its remarks, or its hosts if the remarks are too long.

    For a sweep, how its members are.
    """
    if isinstance(view, SweepView):
        return Long(view.members, below=True)
    hosts, remarks = folded(view.hosts), plain(view.remarks)
    if view.state is State.RUNNING:
        return Long(hosts)
    unremarkable = view.state is State.COMPLETED and len(view.remarks) <= UNREMARKABLE
    return Long(remarks, hosts, below=not unremarkable)


def _notes(view: View) -> list[str]:
    remarks = [plain(view.remarks)] if view.remarks and view.state is State.RUNNING else []
    remarks += [words] if (words := forecast(view)) else []
    left_out = [f"left out: {plain(view.left_out)}"] if view.left_out and not view.state.over else []
    return [*remarks, *left_out, *(f"damaged: {plain(text)}" for text in view.damaged)]


def due_line(due: Due, scheduler: str) -> str:
    """'starts about 2026-11-24 12:00 (slurm's estimate), done about 14:20 (predicted: 2.3 h)', for example."""
    line = f"starts about {_minute(due.starts_s)} ({plain(scheduler)}'s estimate)"
    if due.left_s is None:
        return line
    predicted = f"(predicted: {duration(due.left_s)})"
    if due.attempts and due.attempts > 1:
        return f"{line}, and needs {due.attempts} attempts by its time limit {predicted}"
    return f"{line}, done about {_minute(due.starts_s + due.left_s)} {predicted}"


def _minute(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def _details(view: View) -> str:
    grid = f"grid {Grid(view.grid)}" if view.grid else "grid auto" if view.grid_reason else "grid unknown"
    when = _minute(view.submitted_s) if view.submitted_s is not None else "unknown"
    where = f", on {folded(view.hosts)}" if view.hosts else ""
    without = f", without {view.left_out}" if view.left_out and view.state.over else ""
    begun = f"attempt {view.attempt}, job {view.job or 'unknown'}, submitted {when}"
    return plain(f"{begun}, {grid}{where}{without}, {view.folder}")


STATE: Column[View] = Column("STATE", lambda view: view.state.value, right=False, style=lambda view: of(view.state))
STEP: Column[View] = Column("STEP", steps, right=True, left_out=5)
ETA: Column[View] = Column("ETA", lambda view: view.eta_s, short, right=True, left_out=4)
RESULT: Column[View] = Column("LOSS/ACC", result, right=True, left_out=1)
COLUMNS: tuple[Column[View], ...] = (
    Column("RUN", lambda view: plain(view.run), right=False),
    Column("SITE", lambda view: view.site or None, right=False, left_out=2),
    STATE,
    Column("AGE", lambda view: view.age_s, short, right=True, left_out=3),
    STEP,
    ETA,
    RESULT,
    Column("WHERE", _where, right=False),
)
