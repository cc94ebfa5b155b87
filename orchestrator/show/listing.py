"""Runs as a table: a row for each run or sweep, with lines below it for long and damaged values."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path

from torusrun.orchestrator.base.shown.numbers import number, percent, steps, with_bounds
from torusrun.orchestrator.base.shown.table import Column, Long, Table
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import number_of
from torusrun.orchestrator.run.state.account import Account
from torusrun.orchestrator.run.state.pace import short
from torusrun.orchestrator.run.state.view import ORDER, View
from torusrun.orchestrator.show.account import account_lines
from torusrun.training.counted import counted

BEFORE_OTHERS = (State.RUNNING, State.PENDING, State.UNKNOWN)  # the state of a sweep of which a member is in it


@dataclass(frozen=True)
class SweepView(View):
    """The view of a sweep: that of one member, with the sweep's name and state; `members` says how all of them are."""

    members: str = ""


def by_sweep(views: Sequence[View]) -> list[View]:
    """The views with one for each sweep in place of its members, where its newest member was."""
    sweeps: dict[Path, list[View]] = {}
    for view in views:
        if sweep := RunFolder(Path(view.folder)).sweep:
            sweeps.setdefault(sweep, []).append(view)
    last = {id(members[-1]): _line(sweep, members) for sweep, members in sweeps.items()}
    inside = {id(view) for members in sweeps.values() for view in members}
    return [last.get(id(view), view) for view in views if id(view) in last or id(view) not in inside]


def _line(sweep: Path, members: Sequence[View]) -> SweepView:
    shown = {field.name: getattr(members[-1], field.name) for field in fields(View)}
    nothing = {"step": None, "total_steps": None, "eta_s": None, "loss": None, "accuracy": None, "hosts": ()}
    words = "; ".join(filter(None, (_counts(members), _best(members))))
    own = {"run": sweep.name, "state": state_of_sweep(members), "reason": "", "waiting": "", "pause": "", "damaged": ()}
    return SweepView(**{**shown, **nothing, **own, "left_out": "", "members": words})


def state_of_sweep(members: Sequence[View]) -> State:
    """The state of a sweep: RUNNING while a member runs, PENDING while one waits; at the end the worst."""
    states = {member.state for member in members}
    return next((one for one in (*BEFORE_OTHERS, *ORDER) if one in states), State.UNKNOWN)


def _counts(members: Sequence[View]) -> str:
    states = Counter(member.state for member in members)
    parts = ", ".join(f"{states[one]:,} {one.value}" for one in ORDER if states[one])
    return f"{counted(len(members), 'member')}: {parts}"


def _best(members: Sequence[View]) -> str:
    """The best accuracy so far, or else the least loss; '' without either."""
    accurate = [(view.accuracy, view) for view in members if view.accuracy is not None]
    if accurate:
        value, view = max(accurate, key=lambda one: one[0])
        return f"best accuracy {percent(value)} (member {_number(view)})"
    losses = [(view.loss, view) for view in members if view.loss is not None]
    if losses:
        value, view = min(losses, key=lambda one: one[0])
        return f"least loss {number(value)} (member {_number(view)})"
    return ""


def _number(view: View) -> int:
    return number_of(RunFolder(Path(view.folder)))


UNREMARKABLE = 40  # characters of a COMPLETED run's reason that need no separate line


def listing(
    views: Sequence[View],
    *,
    long: bool = False,
    accounts: Mapping[str, Account] | None = None,
    starts: Mapping[str, float] | None = None,
    width: int | None = None,
) -> Table[View]:
    """The table of the runs; `long` adds a line with job, grid and folder below each.

    Below a run are its estimated start (of time.time()) if `starts` has one, by the ids of runs, and its attempts and
    times, in this `width`, if `accounts` has them.
    """
    found, expected = accounts or {}, starts or {}

    def notes(view: View) -> list[str]:
        of_run = account_lines(found[view.run], width) if view.run in found else ()
        estimate = f"({plain(view.scheduler)}'s estimate)"
        begins = [f"starts about {_minute(expected[view.run])} {estimate}"] if view.run in expected else []
        return [*([_details(view)] if long else []), *begins, *_notes(view), *of_run]

    return Table(COLUMNS, views, notes)


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


def _minute(time_s: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M", time.localtime(time_s))


def _details(view: View) -> str:
    grid = f"grid {Grid(view.grid)}" if view.grid else "grid auto" if view.grid_reason else "grid unknown"
    when = _minute(view.submitted_s) if view.submitted_s is not None else "unknown"
    where = f", on {folded(view.hosts)}" if view.hosts else ""
    without = f", without {view.left_out}" if view.left_out and view.state.over else ""
    begun = f"attempt {view.attempt}, job {view.job or 'unknown'}, submitted {when}"
    return plain(f"{begun}, {grid}{where}{without}, {view.folder}")


STATE: Column[View] = Column("STATE", lambda view: view.state.value, right=False, style=lambda view: view.state.colour)
STEP: Column[View] = Column("STEP", lambda view: steps(view.step, view.total_steps), right=True, left_out=5)
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
