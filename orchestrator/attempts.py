"""A plan becomes a run folder, and a run folder a job: the first attempt and every later one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestrator import images, schedulers
from orchestrator.errors import SiteError, UserError
from orchestrator.planning import Plan
from orchestrator.process import NoAnswer
from orchestrator.runs import index, ledger, provenance
from orchestrator.runs.files import write_json, write_text
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.schedulers.script import job_script
from orchestrator.schedulers.seam import Request
from orchestrator.spec.kinds import seconds
from orchestrator.version import __version__


def create(plan: Plan, source: Path) -> RunFolder:
    """Write the run folder of a plan whose spec lies in `source`. Raises SiteError when the file system refuses."""
    run = RunFolder(plan.folder)
    image = images.fitting(plan)
    gathered, diff = provenance.gather(source)
    try:
        run.folder.mkdir(parents=True, mode=0o700)
        run.attempts.mkdir()
        write_text(run.spec, plan.spec_text)
        write_json(run.provenance, gathered)
        if diff:
            write_text(run.code_diff, diff)
        if image:
            images.keep(run, image)
        write_json(run.plan, plan.as_json())
    except OSError as error:
        raise SiteError(f"{run.folder}: the run folder cannot be made: {error.strerror}") from None
    return run


def submit_first(plan: Plan, source: Path, after: Mapping[str, Path] | None = None) -> RunFolder:
    """Create a run and submit its first attempt; a run that the scheduler refuses leaves nothing behind.

    `after` holds the run folders of the jobs that have to complete first.
    """
    run = create(plan, source)
    try:
        start(plan, run, 1, after)
    except NoAnswer:
        index.add(run)
        raise
    except (SiteError, UserError):
        shutil.rmtree(run.folder, ignore_errors=True)
        raise
    index.add(run)
    return run


def start(plan: Plan, run: RunFolder, number: int, after: Mapping[str, Path] | None = None, **details: Any) -> str:
    """Submit an attempt and return its job's id. `details` go to the ledger.

    Raises UserError when that attempt exists already, SiteError when the scheduler refuses (the attempt is then taken
    back), NoAnswer when nobody knows whether it was submitted (it then stays).
    """
    from orchestrator.job.attempt import RunAttempt
    from orchestrator.schedulers.executors import Executor

    attempt = run.attempt(number)
    try:
        attempt.folder.mkdir()
    except FileExistsError:
        raise UserError(f"attempt {number} of {run.run_id} is being submitted already") from None
    if after:
        details["after"] = [str(folder) for folder in after.values()]
    ledger.append(run.ledger, "submitting", number, name=plan.run_id, **details)
    scheduler = schedulers.get(plan.site.scheduler)
    request = plan.request(attempt, tuple(after or ()))
    try:
        text = script(plan, attempt, request)
        executor = Executor(scheduler, request, attempt.submitit, attempt.script, text, plan.site.command_timeout_s)
        job_id = str(executor.submit(RunAttempt(str(run.folder), number)).job_id)
    except NoAnswer:
        raise
    except (SiteError, UserError) as error:
        shutil.rmtree(attempt.folder, ignore_errors=True)
        ledger.append(run.ledger, "refused", number, reason=str(error))
        raise
    ledger.append(run.ledger, "submitted", number, job=job_id, scheduler=scheduler.name)
    return job_id


def set_time(plan: Plan, run: RunFolder, text: str) -> None:
    """Give the attempts to come another time limit. Raises UserError where `text` is no duration."""
    try:
        changed = replace(plan, run=replace(plan.run, time_s=seconds(text)))
    except ValueError as error:
        raise UserError(f"--time: {text!r} {error}") from None
    if changed.run.time_s <= plan.site.stop_before_s:
        raise UserError(f"--time must be longer than the site's stop_before ({plan.site.stop_before_s:g}s)")
    write_json(run.plan, changed.as_json())


def script(plan: Plan, attempt: Attempt, request: Request | None = None) -> str:
    """The exact text of an attempt's job script."""
    return job_script(
        schedulers.get(plan.site.scheduler),
        request or plan.request(attempt),
        attempt=attempt.folder,
        submitit=attempt.submitit,
        title=f"torusrun {__version__}: attempt {attempt.number} of run {plan.run_id}",
        python=plan.python,
        modules=plan.site.modules,
        environment={**_python_path(), **plan.environment},
    )


def _python_path() -> dict[str, str]:
    """What Python needs here it needs in the job too, and not every scheduler hands the environment on."""
    return {"PYTHONPATH": os.environ["PYTHONPATH"]} if os.environ.get("PYTHONPATH") else {}
