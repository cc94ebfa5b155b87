"""Submits the first attempt of a plan, and every later attempt.

A client can be killed at any moment. So the job's folder is complete before the submission, and the ledger has the
job's name: a later client finds the job by that name.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.terminal.remarks import say, warn
from torusrun.orchestrator.run.attempts import create, in_hold
from torusrun.orchestrator.run.attempts.in_hold import Allocation
from torusrun.orchestrator.run.attempts.script import script
from torusrun.orchestrator.run.folder import allocation, index, ledger, settled
from torusrun.orchestrator.run.folder.allocation import AskedOf
from torusrun.orchestrator.run.folder.events import JobAdded, NoMoreJobs, Refused, Submitted, Submitting
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import attempt_plan
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.job_request import request, without_bad_nodes
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.training.counted import counted

if TYPE_CHECKING:  # it leads to all that finds the state of a run
    from torusrun.orchestrator.run.state.awaited import Awaited


def first(
    plan: Plan,
    source: Path,
    after: Sequence[Awaited] = (),
    origin: create.Origin | None = None,
    *,
    into: Allocation | None = None,
    idle_s: float | None = None,
) -> RunFolder:
    """Make the run of a plan whose spec is in `source`, and submit its first attempt, to begin after these jobs.

    `origin` is the origin of its files, if they are from another machine. The attempt is submitted `into` a held
    allocation, or to the scheduler. With `idle_s` its job holds an allocation for others. A refused run leaves nothing
    behind. Raises SiteError or UserError if it is refused, NoAnswer if it is unknown whether it was submitted (the run
    then stays).
    """
    if plan.site.host:
        raise UserError(f"the site is reached through {plan.site.host}: this is done there, or by `torusrun submit`")
    if into:
        in_hold.check(plan, into)
    run, planned = RunFolder(plan.folder), _without_bad_nodes(attempt_plan.first(plan), into)
    asked = request_of(planned, run, after)
    text = script(planned, run.attempt(1), asked, held=into is not None)
    create.run(planned, source, text, intent(planned, asked, after, into=into), origin, idle_s)
    try:
        _submit(planned, run, asked, into)
    except NoAnswer:
        raise
    except (SiteError, UserError):
        index.forget(run)
        raise
    return run


def proposed(plan: Plan, after: Sequence[Awaited] = (), planned: AttemptPlan | None = None) -> tuple[Request, str]:
    """(the request of the first attempt's job, its script for the scheduler); `planned` is its plan, if it is made."""
    run, planned = RunFolder(plan.folder), planned or attempt_plan.first(plan)
    asked = request_of(planned, run, after)
    return asked, script(planned, run.attempt(1), asked)


def later(
    planned: AttemptPlan, run: RunFolder, resumes: str | None, *, into: Allocation | None = None, follows: int = 0
) -> None:
    """Submit a later attempt of a run, which continues from the checkpoint `resumes`. The caller holds the run's lock.

    It is submitted `into` a held allocation, or to the scheduler. `follows` is the attempt whose job submits it, or 0.

    Raises SiteError if the scheduler refuses the attempt (it is then removed), NoAnswer if it is unknown whether it was
    submitted (it then stays).
    """
    attempt = run.attempt(planned.number)
    if into:
        in_hold.check(planned.plan, into)
    planned = _without_bad_nodes(planned, into)
    asked = request_of(planned, run)
    text = script(planned, attempt, asked, held=into is not None)
    settled.forget([run.run_id])
    ledger.append(run.ledger, replace(intent(planned, asked, into=into), resumes=resumes, follows=follows))
    create.attempt(attempt, planned, text)
    try:
        _submit(planned, run, asked, into)
    except NoAnswer:
        raise
    except (SiteError, UserError) as error:
        create.take_back(attempt)
        ledger.append(run.ledger, Refused(planned.number, str(error)))
        raise


def _without_bad_nodes(planned: AttemptPlan, into: Allocation | None) -> AttemptPlan:
    """The plan without bad hosts, which are printed. A held allocation has its hosts already."""
    planned = planned if into else without_bad_nodes(planned)
    for line in planned.left_out.lines:
        say(line)
    return planned


def request_of(planned: AttemptPlan, run: RunFolder, after: Sequence[Awaited] = ()) -> Request:
    """The request of an attempt's job, which begins after these jobs."""
    # The job itself checks that the runs of `after` are COMPLETED (run/state/depends.py).
    ends = [awaited for awaited in after if not awaited.ready]
    any_end = [awaited.job for awaited in ends if awaited.any_end or awaited.several]
    well = [awaited.job for awaited in ends if awaited.job not in any_end]
    begun = [awaited.job for awaited in after if awaited.ready and awaited.job]
    return replace(request(planned, run.attempt(planned.number), well, any_end), after_begun=tuple(begun))


def intent(
    planned: AttemptPlan,
    asked: Request,
    after: Sequence[Awaited] = (),
    *,
    task: int | None = None,
    into: Allocation | None = None,
) -> Submitting:
    """The event before the submission of an attempt: as a job, a `task` of the array `asked`, or `into` a hold."""
    plan, held_in = planned.plan, str(into.run.folder) if into else ""
    return Submitting(
        planned.number, asked.called,
        after=tuple(awaited.folder for awaited in after if not (awaited.any_end or awaited.ready)),
        after_any=tuple(awaited.folder for awaited in after if awaited.any_end),
        changes=planned.changes, task=task, held_in=held_in,
        jobs=plan.jobs if plan.keeps_going and not into else 0, in_turn=plan.jobs_in_turn and not into,
        left_out=planned.left_out.hosts, after_ready=_ready(plan, after),
    )  # fmt: skip


def _ready(plan: Plan, after: Sequence[Awaited]) -> dict[str, str]:
    """The roles of other runs that must be ready, with the folders of these runs. Raises UserError for equal names."""
    ready = [awaited for awaited in after if awaited.ready]
    names = [*(awaited.ready for awaited in ready), *plan.run.roles]
    if twice := [awaited.ready for awaited in ready if names.count(awaited.ready) > 1]:
        raise UserError(f"two roles are called {twice[0]!r}, and TORUSRUN_{twice[0].upper()}_ADDR is of one of them")
    return {awaited.ready: awaited.folder for awaited in ready}


def within(planned: AttemptPlan, run: RunFolder, intent: Submitting, job: str) -> None:
    """Make a later attempt that the running `job` begins itself. The caller holds the run's lock."""
    settled.forget([run.run_id])
    ledger.append(run.ledger, intent)
    create.attempt(run.attempt(planned.number), planned)
    ledger.append(run.ledger, Submitted(planned.number, job, planned.plan.site.scheduler))


def _submit(planned: AttemptPlan, run: RunFolder, asked: Request, into: Allocation | None) -> None:
    """Submit the attempt to the scheduler, or to a keeper.

    Raises NoAnswer if the queue may have a job despite an error, UserError if the keeper has ended meanwhile.
    """
    attempt, site = run.attempt(planned.number), planned.plan.site
    try:
        if into:
            allocation.ask(allocation.of(into.run.folder), AskedOf(attempt))
            job = into.job
        else:
            with private.umask(site.umask):  # Slurm and local sites make the job's output files with it
                job = client.of(site).submit(attempt.script, asked, cwd=attempt.folder)
        accepted(run, Submitted(planned.number, job, site.scheduler))
    except allocation.Closed as error:
        raise UserError(str(error)) from None
    except NoAnswer as error:
        raise unsure(error, run.run_id, asked.called) from None
    if planned.plan.jobs_in_turn and not into:
        with private.umask(site.umask):
            add_jobs(planned, run, asked, job)


def accepted(run: RunFolder, event: Submitted | JobAdded) -> None:
    """Write an accepted job into the ledger. Raises NoAnswer if that fails: a later look recognizes it by its name."""
    try:
        ledger.append(run.ledger, event)
    except SiteError as error:
        raise NoAnswer(f"the scheduler has accepted job {event.job}, which cannot be recorded: {error}") from None


def unsure(error: NoAnswer, name: str, called: str) -> NoAnswer:
    """The error with advice: the job of the run or sweep `name` may be in the queue, where it is `called` so."""
    known = f"`torusrun status {name}` finds it by its name {called!r}"
    return NoAnswer(f"{error}; a job may exist anyway: do not submit it again, {known}")


def add_jobs(planned: AttemptPlan, run: RunFolder, asked: Request, before: str) -> None:
    """Submit the further jobs of a run, each to begin after any end of the job before it, the first after `before`.

    `asked` is the request of that first job. If the scheduler refuses a job, the run has fewer jobs, which is printed.
    If it is unknown whether it took a job, a later look at the run recognizes the job by its name.
    """
    plan, number, asks = planned.plan, planned.number, client.of(planned.plan.site)
    path = run.attempt(number).script
    for turn in range(1, plan.jobs):
        try:
            before = asks.submit(path, asks.in_turn(asked, f"{asked.called}.{turn}", before), cwd=path.parent)
            accepted(run, JobAdded(number, before))
        except NoAnswer as error:
            warn(f"{turn} of {counted(plan.jobs, 'job')} submitted, and perhaps one more: {error}")
            break
        except (SiteError, UserError) as error:
            warn(f"{turn} of {counted(plan.jobs, 'job')} submitted, and no more: {error}")
            with contextlib.suppress(SiteError):  # a full disk: a later look notices that no more were submitted
                ledger.append(run.ledger, NoMoreJobs(number, str(error)))
            break
