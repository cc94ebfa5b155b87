"""The jobs that a run waits for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.training.recipe.near import did_you_mean

if TYPE_CHECKING:  # few runs wait for others, and the rest need not load what reads the states of runs
    from torusrun.orchestrator.run.state.view import View

RUN_AND_ROLE = re.compile(r"(?P<run>.+):(?P<role>[a-z][a-z0-9_]{0,30})")


@dataclass(frozen=True)
class Awaited:
    """A job that must end first, and the folder of its run. Unless `any_end`, its run must be COMPLETED.

    `several` says that it is an array of jobs, or the last job, of a run that keeps going, or the array of a sweep:
    then single jobs may end badly. `ready` is a role of the run that must be ready, in place of an end: then the job
    must have begun, and is '' if it has.
    """

    job: str
    folder: str
    any_end: bool = False
    several: bool = False
    ready: str = ""


def to_wait_for(scheduler: str, after: Sequence[str], after_any: Sequence[str]) -> list[Awaited]:
    """The jobs that a job of `scheduler` waits for: `after` must be COMPLETED, `after_any` must be over.

    A word RUN:ROLE in `after` waits for that role of the run to be ready. A run that has come so far adds no job.
    Raises UserError for a run that is unknown, or cannot be waited for.
    """
    ready = [match for word in after if (match := RUN_AND_ROLE.fullmatch(word))]
    whole = [word for word in after if not RUN_AND_ROLE.fullmatch(word)]
    ends = [*_jobs(whole, scheduler, any_end=False), *_jobs(after_any, scheduler, any_end=True)]
    return [*ends, *(_ready(match["run"], match["role"], scheduler) for match in ready)]


def _jobs(words: Sequence[str], scheduler: str, *, any_end: bool) -> list[Awaited]:
    if not words:
        return []
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.state.poll import views

    runs = views([index.find(word) for word in words], fresh=True)
    return [job for seen in runs if (job := _awaited(seen, scheduler, any_end))]


def _ready(word: str, role: str, scheduler: str) -> Awaited:
    from torusrun.orchestrator.run.folder import index
    from torusrun.orchestrator.run.plan.plan_files import read_plan
    from torusrun.orchestrator.run.state.poll import views

    (seen,) = views([index.find(word)], fresh=True)
    if seen.state.over:
        raise UserError(f"{seen.run} is {seen.state.value} ({seen.reason}): its roles will not be ready")
    roles = read_plan(RunFolder(Path(seen.folder)), seen.attempt).run.roles
    if role not in roles:
        raise UserError(f"{seen.run} has no role {role!r}{did_you_mean(role, roles)}")
    has_to_begin = seen.state is State.PENDING and seen.scheduler == scheduler
    return Awaited(seen.job or "" if has_to_begin else "", seen.folder, ready=role)


def _awaited(seen: View, scheduler: str, any_end: bool) -> Awaited | None:
    from torusrun.orchestrator.run.folder import allocation, ledger
    from torusrun.orchestrator.run.state import next_attempt

    if seen.state is State.COMPLETED or (any_end and seen.state.certain):
        return None
    if seen.state.over or seen.job is None:
        raise UserError(
            f"{seen.run} is {seen.state.value} ({seen.reason}): a run can only wait for a run that has yet to end"
        )
    events = ledger.events(RunFolder(Path(seen.folder)).ledger)
    if held := allocation.held_in(events, seen.attempt):
        raise UserError(f"{seen.run} runs in the held allocation {Path(held).name}: no job can wait for it")
    if seen.scheduler != scheduler:
        raise UserError(f"{seen.run} is a job of {seen.scheduler}: a job of {scheduler} cannot wait for it")
    job = [seen.job, *next_attempt.later_jobs(events, seen.attempt, seen.job)][-1]
    array = schedulers.get(scheduler).awaitable(job)
    several = array != job or next_attempt.may_begin_another(events, seen.attempt)
    return Awaited(array, seen.folder, any_end, several)
