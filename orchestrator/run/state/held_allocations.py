"""Held allocations in the list of runs: the state of their keepers, and the attempts that run in them.

The state of the job concerns the allocation. It is the end of an attempt only if the whole allocation ended.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder import allocation
from torusrun.orchestrator.run.folder.events import Started
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.state.pace import short
from torusrun.orchestrator.run.state.record import Record

ENDS_ALL = (State.TIMEOUT, State.NODE_FAIL, State.PREEMPTED, State.OOM)  # these ends of a job also end its attempt


def in_hold(record: Record, job: Status | None) -> Status | None:
    """The state of an attempt by its job: the job's own state, unless the job is a held allocation."""
    held = allocation.held_in(record.events, record.attempt)
    if not held or job is None or record.job is None or job.state is State.UNKNOWN:
        return job  # if the record has no job, `job` is from its folder, not from a scheduler
    name, started = Path(held).name, last(record.events, Started, record.attempt)
    if not job.state.over:
        if record.end:
            return None  # its own record says all: the job continues with other attempts
        return job if started else Status(State.PENDING, _waits(held, name, job, record.folder.run_id))
    if record.end or job.state in ENDS_ALL:
        return job
    if not started:
        return ended(How.HOLD_ENDED, allocation=name).status
    return Status(State.LOST, f"the held allocation {name} ended")


def _waits(held: str, name: str, job: Status, run: str) -> str:
    """Why an attempt has not begun."""
    if job.state is State.PENDING:
        return f"waits in {name}, which itself waits: {job.reason}" if job.reason else f"waits for {name} to begin"
    try:
        state = allocation.keeper_state(allocation.of(held))
    except SiteError as error:
        return f"waits in {name}: {error}"
    if state is None:
        return f"waits in {name}, which is still being checked"
    if not state.busy or state.busy == run:
        return f"begins in {name}"
    ahead = list(state.waiting[: state.waiting.index(run)]) if run in state.waiting else []
    return f"waits in {name} for {', '.join([state.busy, *ahead])}"


def told_by_keeper(record: Record, status: Status) -> Status:
    """The state of a run. If it holds an allocation, the reason says what its keeper does."""
    if status.state is not State.RUNNING or not allocation.is_held(record.folder):
        return status
    try:
        state = allocation.keeper_state(allocation.of(record.folder.folder))
    except SiteError as error:
        return replace(status, reason=str(error))
    return replace(status, reason=_does(state, time.time()) if state else "shows that its ranks start")


def _does(state: allocation.KeeperState, now_s: float) -> str:
    left, since_s = short(max(state.until_s - now_s, 0.0)), max(now_s - state.since_s, 0.0)
    if state.busy:
        waiting = f", and {len(state.waiting)} more to come" if state.waiting else ""
        return f"held for {left} more: {state.busy} is at work{waiting}"
    return f"held for {left} more: idle for {short(since_s)}, given back after {short(state.idle_s)}"
