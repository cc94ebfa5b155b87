"""The scripts of an attempt: of its job, or of the jobs that begin attempts of a run that keeps going."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import absolute_only
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.job_request import request
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.script import activating, job_script


@dataclass(frozen=True)
class Scripts:
    """The script that begins an attempt, and, for a run that keeps going, that of the jobs that start such scripts."""

    attempt: str
    jobs: str = ""

    @property
    def submitted(self) -> str:
        """The script that the scheduler gets."""
        return self.jobs or self.attempt


def submitted(plan: Plan, attempt: Attempt) -> Path:
    """The path of the script that the scheduler gets."""
    return attempt.jobs_script if plan.keeps_going else attempt.script


def scripts(planned: AttemptPlan, attempt: Attempt, asked: Request, *, held: bool = False) -> Scripts:
    """The exact texts of an attempt's scripts; `asked` is its request.

    `held` says that a process of a job starts it, in an allocation that exists already.
    """
    if planned.plan.keeps_going and not held:
        return Scripts(script(planned, attempt, asked, held=True), _jobs(planned, attempt, asked))
    return Scripts(script(planned, attempt, asked, held=held))


def script(planned: AttemptPlan, attempt: Attempt, asked: Request | None = None, *, held: bool = False) -> str:
    """The script that begins an attempt; `asked` is its job's request if it waits for others."""
    plan = planned.plan
    return job_script(
        plan.site,
        replace(asked or request(planned, attempt), stdout=attempt.stdout, stderr=attempt.stderr),
        attempt=attempt.folder,
        entry=process.module(plan.python, "torusrun.orchestrator.job.attempt", attempt.folder),
        title=f"torusrun {__version__}: attempt {planned.number} of run {plan.run_id}",
        setup=[*activating(plan.run.software), *plan.run.setup],
        environment={**python_path(), **plan.environment},
        umask=plan.site.umask,
        held=held,
    )


def _jobs(planned: AttemptPlan, attempt: Attempt, asked: Request) -> str:
    """The script of the jobs. Each attempt's own script has the steps of `setup` and records its end."""
    plan = planned.plan
    return job_script(
        plan.site,
        asked,
        attempt=attempt.folder,
        entry=process.module(plan.python, "torusrun.orchestrator.job.keep_going", attempt.folder),
        title=f"torusrun {__version__}: run {plan.run_id}, from attempt {planned.number} on",
        environment=python_path(),
        umask=plan.site.umask,
        loads=False,
        records_end=False,
    )


def python_path() -> dict[str, str]:
    """This process's PYTHONPATH, for the job: some schedulers do not pass the environment on."""
    path = absolute_only(os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": path} if path else {}
