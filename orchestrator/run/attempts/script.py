"""The script of a submission: its job begins an attempt, and further ones if its run keeps going."""

from __future__ import annotations

import os
from dataclasses import replace

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import absolute_only
from torusrun.orchestrator.base.version import __version__
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.job_request import request
from torusrun.orchestrator.schedulers.interface import Request
from torusrun.orchestrator.schedulers.script import activating, job_script

LOOP = "torusrun.orchestrator.job.loop"


def script(planned: AttemptPlan, attempt: Attempt, asked: Request | None = None, *, held: bool = False) -> str:
    """The exact text of the script that is submitted with an attempt; `asked` is its request.

    `held` says that a held allocation starts it, which ignores that the run keeps going.
    """
    plan, asked = planned.plan, asked or request(planned, attempt)
    if held:
        asked = replace(asked, stdout=attempt.stdout, stderr=attempt.stderr)
    return job_script(
        plan.site,
        asked,
        attempt=attempt.folder,
        entry=process.module(plan.python, LOOP, attempt.folder),
        title=f"torusrun {__version__}: run {plan.run_id}, from attempt {planned.number} on",
        setup=[*activating(plan.run.software), *plan.run.setup],
        environment={**python_path(), **plan.jobs_environment},
        umask=plan.site.umask,
        held=held,
        several=plan.keeps_going and not held,
    )


def python_path() -> dict[str, str]:
    """This process's PYTHONPATH, for the job: some schedulers do not pass the environment on."""
    path = absolute_only(os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": path} if path else {}
