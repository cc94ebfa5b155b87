"""The next attempt of a run that keeps going, made by the job that begins it."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from orchestrator import schedulers
from orchestrator.base.errors import SiteError
from orchestrator.base.states import Cause, State, Status
from orchestrator.runs.attempts import continues_from, submit
from orchestrator.runs.folder import ledger
from orchestrator.runs.folder.changes import Changes
from orchestrator.runs.folder.end_words import ended
from orchestrator.runs.folder.events import CancelRequested, Ended, Event, KeptGoing, Started, Submitted, Submitting
from orchestrator.runs.folder.how_ended import How
from orchestrator.runs.folder.ledger import last
from orchestrator.runs.folder.records import End, is_done
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.plan import plan_files
from orchestrator.runs.plan.attempt_plan import AttemptPlan, derive
from orchestrator.runs.plan.plan import Plan
from orchestrator.runs.state import which
from orchestrator.runs.state.decide import History, Policy, Resume, Step, Stop, decide
from orchestrator.runs.state.in_vain import first_of_submission, in_vain, same_error
from orchestrator.runs.state.outcome import resolve
from orchestrator.schedulers.client import Client

LOCK_S = 120.0  # a client that resumes the run holds its lock during the submission
ANSWER_S = 10.0  # for the scheduler's word about the job before; many nodes cannot query it


@dataclass(frozen=True)
class Here:
    """The job that asks: its id as it was submitted, its own name (a task's, in an array), and its usable hosts."""

    job: str
    name: str
    hosts: int


def next_step(run: RunFolder, here: Here, *, begin: bool) -> Step:
    """What follows for the run: Resume has the attempt to begin in this job, which is made if the job will `begin` it.

    If none follows, the ledger says why. Raises SiteError or UserError if the attempt cannot be made.
    """
    with submit.alone(run, LOCK_S):
        events = ledger.events(run.ledger)
        number = which.newest_of(run)
        plan = plan_files.read_first(run, number)
        checkpoint, epochs = continues_from.checkpoint(run, plan)
        name = checkpoint.name if checkpoint else None
        history = _history(run, events, plan, here, number, name)
        step = decide(history, Policy.KEEP_GOING)
        if begin and isinstance(step, Resume) and step.attempt > number:
            events = ledger.events(run.ledger)
            planned = _planned(run, events, plan, here, step.attempt, epochs)
            _make(run, events, planned, here, name)
        if isinstance(step, Stop) and not history.other_job:
            close(run, number, step.why)
        return step


def close(run: RunFolder, number: int, why: str) -> None:
    """Record that no further attempt follows attempt `number`."""
    if not last(ledger.events(run.ledger), KeptGoing, number):
        ledger.append(run.ledger, KeptGoing(number, why))


def _history(
    run: RunFolder, events: Sequence[Event], plan: Plan, here: Here, number: int, checkpoint: str | None
) -> History:
    submitted, began = last(events, Submitted, number), last(events, Started, number)
    end = _end(run, events, plan, here, number)
    status = end.status if end else Status(State.RUNNING)
    asked_to_stop = end and end.certain and end.cause is Cause.STOPPED and "exit_code" not in end.evidence
    now = ledger.events(run.ledger)
    return History(
        number,
        status.state,
        status.reason,
        begun=bool(began or end),
        again=end is None or end.again,
        cancelled=last(events, CancelRequested, number) is not None,
        stopped=Cause.STOPPED if asked_to_stop else None,
        cause=status.cause,
        in_vain=in_vain(now, number, checkpoint),
        most_in_vain=plan.run.keep_going.without_progress,
        same_error=same_error(now, number),
        other_job=submitted is not None and submitted.job != here.job,
    )


def _end(run: RunFolder, events: Sequence[Event], plan: Plan, here: Here, number: int) -> End | None:
    """How attempt `number` ended; None if it has not begun. Its end is in the ledger after this.

    Only one job of the run works at a time: so an attempt that this job has not just ended is over.
    """
    attempt, began = run.attempt(number), last(events, Started, number)
    end = None
    with contextlib.suppress(SiteError):  # a damaged record
        end = End.read(attempt.end)
    seen = last(events, Ended, number)
    if (end and end.certain) or seen:
        return end if end and end.certain else seen.end if seen else None
    if not began:
        return end
    said = None if began.job == here.name else _scheduler_said(plan, began.job)
    status = resolve(list(events), number, end, said, time.time(), done=is_done(attempt))
    if status.state.over and status.state is not State.LOST:
        found = replace(end or End(status.state, status.reason, hosts=_first_host(run, number, status)),
                        state=status.state, reason=status.reason, cause=status.cause)  # fmt: skip
    else:
        found = end or ended(How.NO_END, told=f": {said.reason}" if said and said.reason else "")
    ledger.append(run.ledger, Ended.by(number, found))
    return found


def _scheduler_said(plan: Plan, job: str) -> Status | None:
    """The scheduler's word about an earlier job; None if it has none, or this node cannot query it."""
    scheduler = schedulers.get(plan.site.scheduler)
    said = Client(scheduler, min(plan.site.command_timeout_s, ANSWER_S)).poll([job])[job]
    return said if said.state.over else None


def _first_host(run: RunFolder, number: int, status: Status) -> tuple[str, ...]:
    """The host of the supervisor, if its loss ended the attempt: any other host it would have named itself."""
    with contextlib.suppress(OSError):
        if status.state is State.NODE_FAIL:
            return (run.attempt(number).pulse.read_text().strip(),)
    return ()


def _planned(
    run: RunFolder, events: Sequence[Event], plan: Plan, here: Here, number: int, epochs: float
) -> AttemptPlan:
    """The plan of attempt `number`, on fewer nodes if the job has lost too many."""
    history = plan_files.history(run, events)
    planned = derive(plan, history, number, Changes(), epochs)
    full = plan_files.read_attempt(run, first_of_submission(events, number - 1)).plan.run
    nodes = min(full.nodes, here.hosts)
    if nodes == planned.plan.run.nodes or planned.plan.stretch:
        return planned
    grid = full.grid if nodes == full.nodes else ()
    return derive(plan, history, number, Changes(nodes=nodes, grid=grid), epochs)


def _make(run: RunFolder, events: Sequence[Event], planned: AttemptPlan, here: Here, checkpoint: str | None) -> None:
    before = last(events, Submitting, planned.number - 1)
    intent = Submitting(
        planned.number,
        before.name if before else run.run_id,
        resumes=checkpoint,
        changes=planned.changes,
        follows=planned.number - 1,
        jobs=before.jobs if before else 1,
    )
    submit.within(planned, run, intent, here.job)
