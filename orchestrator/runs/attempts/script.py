"""The job script of an attempt."""

from __future__ import annotations

import os

from orchestrator.base import process
from orchestrator.base.environment import absolute_only
from orchestrator.base.version import __version__
from orchestrator.runs.folder.run_folder import Attempt
from orchestrator.runs.plan.attempt_plan import AttemptPlan
from orchestrator.runs.plan.job_request import request
from orchestrator.schedulers.interface import Request
from orchestrator.schedulers.script import job_script


def script(
    planned: AttemptPlan,
    attempt: Attempt,
    asked: Request | None = None,
    *,
    held: bool = False,
) -> str:
    """The exact text of the script; `asked` is the job's request if it waits for others.

    `held` says that a keeper starts it, in an allocation that exists already.
    """
    plan = planned.plan
    return job_script(
        plan.site,
        asked or request(planned, attempt),
        attempt=attempt.folder,
        entry=process.module(plan.python, "orchestrator.job.attempt", attempt.folder),
        title=f"torusrun {__version__}: attempt {planned.number} of run {plan.run_id}",
        setup=plan.run.setup,
        environment={**python_path(), **plan.environment},
        umask=plan.site.umask,
        held=held,
    )


def python_path() -> dict[str, str]:
    """This process's PYTHONPATH, for the job: some schedulers do not pass the environment on."""
    path = absolute_only(os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": path} if path else {}
