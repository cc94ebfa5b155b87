"""The state of an attempt that depends on other runs: those that it waits for, and the held allocation that it is in.

The state of a held allocation's job is the end of an attempt in it only if the whole allocation ended.
"""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State, Status, never_starts
from torusrun.orchestrator.run.folder import allocation, ledger
from torusrun.orchestrator.run.folder.events import Ended, Event, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.pace import short

if TYPE_CHECKING:  # a job needs `unmet` alone
    from torusrun.orchestrator.run.state.record import Record

ENDS_ALL = (State.TIMEOUT, State.NODE_FAIL, State.PREEMPTED, State.OOM)  # these ends of a job also end its attempt


def unmet(events: list[Event], attempt: int) -> tuple[str, State | None] | None:
    """(a run that the attempt waits for and that did not complete, its state); None if all are COMPLETED.

    The state is None if the ledger of that run records no end.
    """
    submitting = last(events, Submitting, attempt)
    for folder in submitting.after if submitting else ():
        theirs = ledger.events(RunFolder(Path(folder)).ledger)
        end = last(theirs, Ended, max((event.attempt for event in theirs if isinstance(event, Ended)), default=0))
        state = end.state if end else None
        if state is not State.COMPLETED:
            return Path(folder).name, state
    return None


def held_forever(record: Record, job: Status | None) -> Status | None:
    """The scheduler's state of the run's job, with advice if the job would be held forever.

    A scheduler never starts a job that waits for another job, if that ended before it began.
    """
    run = _ended_before_it_began(record.events, record.attempt) if job and job.held and record.mine else None
    if job is None or run is None:
        return job
    return never_starts(f"{job.reason}, and {run} ended before it began: cancel this run, and submit it again")


def _ended_before_it_began(events: list[Event], attempt: int) -> str | None:
    """A run that the attempt waits for and whose job ended before it began; None without such a run."""
    submitting = last(events, Submitting, attempt)
    if submitting is None:
        return None
    for folder in (*submitting.after, *submitting.after_any):
        theirs = ledger.events(RunFolder(Path(folder)).ledger)
        # A job does not wait for attempts that were submitted after it.
        jobs = [e.attempt for e in theirs if isinstance(e, Submitted) and e.time_s <= submitting.time_s]
        if jobs and last(theirs, Ended, max(jobs)) and not last(theirs, Started, max(jobs)):
            return Path(folder).name
    return None


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
