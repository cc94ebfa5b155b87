"""Runs as a table: a row for each run or sweep, and below it long values, its attempts, and where its time went."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from pathlib import Path, PurePosixPath

from torusrun.orchestrator.base.shown.numbers import duration as exactly
from torusrun.orchestrator.base.shown.numbers import minute, ms, number, percent, steps, with_bounds
from torusrun.orchestrator.base.shown.table import Column, Long, Table
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.plain import INDENT, plain
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import number_of
from torusrun.orchestrator.run.state.account import USES, Account
from torusrun.orchestrator.run.state.attempts import AttemptFacts
from torusrun.orchestrator.run.state.pace import duration, short
from torusrun.orchestrator.run.state.view import ORDER, View
from torusrun.training.counted import counted

BEFORE_OTHERS = (State.RUNNING, State.PENDING, State.UNKNOWN)  # the state of a sweep of which a member is in it


@dataclass(frozen=True)
class SweepView(View):
    """The view of a sweep: that of a member, with the sweep's name and state; `members` says how all of them are."""

    members: str = ""


def by_sweep(views: Sequence[View]) -> list[View]:
    """The views, with a view of each sweep in place of its members, where its newest member was."""
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
    """The state of a sweep: RUNNING while a member runs, PENDING while a member waits; at the end the worst."""
    states = {member.state for member in members}
    return next((state for state in (*BEFORE_OTHERS, *ORDER) if state in states), State.UNKNOWN)


def _counts(members: Sequence[View]) -> str:
    count = Counter(member.state for member in members)
    parts = ", ".join(f"{count[state]:,} {state.value}" for state in ORDER if count[state])
    return f"{counted(len(members), 'member')}: {parts}"


def _best(members: Sequence[View]) -> str:
    """The best accuracy so far, or else the least loss; '' without either."""
    accurate = [(view.accuracy, view) for view in members if view.accuracy is not None]
    if accurate:
        value, view = max(accurate, key=lambda pair: pair[0])
        return f"best accuracy {percent(value)} (member {_number(view)})"
    losses = [(view.loss, view) for view in members if view.loss is not None]
    if losses:
        value, view = min(losses, key=lambda pair: pair[0])
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

    Below a run are its estimated start (of time.time()) if `starts` has it, by the ids of runs, and its attempts and
    times, in this `width`, if `accounts` has them.
    """
    accounts_of, expected = accounts or {}, starts or {}

    def notes(view: View) -> list[str]:
        of_run = account_lines(accounts_of[view.run], width) if view.run in accounts_of else ()
        estimate = f"({plain(view.scheduler)}'s estimate)"
        begins = [f"starts about {minute(expected[view.run])} {estimate}"] if view.run in expected else []
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


def _details(view: View) -> str:
    grid = f"grid {Grid(view.grid)}" if view.grid else "grid auto" if view.grid_reason else "grid unknown"
    when = minute(view.submitted_s) if view.submitted_s is not None else "unknown"
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


LEAST_SHARE = 0.001  # of the time: a use with less is not shown


def account_lines(account: Account, width: int | None) -> Iterator[str]:
    """The attempts and the times as lines below a run."""
    yield from Table(ATTEMPTS, account.attempts).lines(None if width is None else width - len(INDENT))
    yield from time_lines(account)


def time_lines(account: Account) -> Iterator[str]:
    """Where the time went, with shares, without uses that took almost nothing."""
    total_s = account.total_s
    if not total_s:
        return
    used = ((use, account.seconds.get(use, 0.0)) for use in USES)
    parts = [
        f"{use} {duration(took_s)} ({took_s / total_s:.1%})" for use, took_s in used if took_s > total_s * LEAST_SHARE
    ]
    yield f"{', '.join(parts)}; {duration(total_s)} in all"
    if account.ettr is not None and account.since_submit is not None:
        since = f"{account.since_submit:.1%} since its submission"
        yield f"productive: {account.ettr:.1%} of the time since its first start, {since}"
    if line := forecast_line(account):
        yield line


def forecast_line(account: Account) -> str:
    """The forecast at submit and the measured time, as a line; '' without a forecast."""
    kept, took_s = account.forecast, account.productive_s
    if not kept:
        return ""
    validation = f", {exactly(kept.validation_s)} of it for evaluations" if kept.validation_s else ""
    predicted = f"predicted at submit: {exactly(kept.total_s)} for {counted(kept.steps, 'step')}{validation}"
    if not took_s:
        return predicted
    if account.attempts[-1].state is State.COMPLETED:
        line = f"{predicted}; took {exactly(took_s)} ({took_s / kept.total_s - 1:+.1%})"
        if step_s := account.step_s:
            line += f"; a step of {ms(kept.step_s)} ms took {ms(step_s)} ms ({step_s / kept.step_s - 1:+.1%})"
        return line
    return f"{predicted}; {exactly(took_s)} so far"


def _when(time_s: float) -> str:
    return time.strftime("%m-%d %H:%M:%S", time.localtime(time_s))


ATTEMPTS: tuple[Column[AttemptFacts], ...] = (
    Column("ATTEMPT", lambda row: row.attempt, right=False),
    Column("JOB", lambda row: row.job, plain, right=False, left_out=3),
    Column("STATE", lambda row: row.state.value, right=False, style=lambda row: row.state.colour),
    Column("CAUSE", lambda row: plain(row.cause) or None, right=False),
    Column("BEGAN", lambda row: row.begun_s, _when, right=False, left_out=2),
    Column("TOOK", lambda row: row.took_s, duration, right=True),
    Column(
        "FROM", lambda row: PurePosixPath(plain(row.resumes)).name if row.resumes else None, right=False, left_out=1
    ),
    Column("HOSTS", lambda row: folded(row.hosts) or None, right=False),
)
