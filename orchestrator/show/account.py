"""The attempts of a run and its times: a table, and the times in words."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import PurePosixPath

from torusrun.orchestrator.base.shown.numbers import duration as exactly
from torusrun.orchestrator.base.shown.numbers import ms
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.plain import INDENT, plain
from torusrun.orchestrator.place.hosts.hostlist import folded
from torusrun.orchestrator.run.state.account import USES, Account
from torusrun.orchestrator.run.state.attempts import AttemptFacts
from torusrun.orchestrator.run.state.pace import duration
from torusrun.training.counted import counted

LEAST_SHARE = 0.001  # of the time: a use with less is not shown


def account_lines(account: Account, width: int | None) -> Iterator[str]:
    """The attempts and the times as lines below a run."""
    yield from attempts(account).lines(None if width is None else width - len(INDENT))
    yield from time_lines(account)


def attempts(account: Account) -> Table[AttemptFacts]:
    """The attempts of a run, one in a row."""
    return Table(COLUMNS, account.attempts)


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


COLUMNS: tuple[Column[AttemptFacts], ...] = (
    Column("ATTEMPT", lambda one: one.attempt, right=False),
    Column("JOB", lambda one: one.job, plain, right=False, left_out=3),
    Column("STATE", lambda one: one.state.value, right=False, style=lambda one: one.state.colour),
    Column("CAUSE", lambda one: plain(one.cause) or None, right=False),
    Column("BEGAN", lambda one: one.begun_s, _when, right=False, left_out=2),
    Column("TOOK", lambda one: one.took_s, duration, right=True),
    Column(
        "FROM", lambda one: PurePosixPath(plain(one.resumes)).name if one.resumes else None, right=False, left_out=1
    ),
    Column("HOSTS", lambda one: folded(one.hosts) or None, right=False),
)
