"""A plan becomes a run folder, and a run folder a job: the first attempt and every later one.

A client can be killed at any moment. So the index is written first, then what the job needs, under an unfinished name;
the rename makes it a run or an attempt, and only then is the scheduler asked. Nothing is lost, and what is left of a
killed client is known by its name.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from orchestrator import private, process, schedulers
from orchestrator.code.freeze import freeze
from orchestrator.errors import SiteError, UserError
from orchestrator.images import run_image
from orchestrator.plans.plan import Plan
from orchestrator.process import NoAnswer
from orchestrator.runs import index, ledger, provenance
from orchestrator.runs.events import Refused, Submitted, Submitting
from orchestrator.runs.files import write_json, write_text
from orchestrator.runs.folder import Attempt, RunFolder
from orchestrator.schedulers import client
from orchestrator.schedulers.script import job_script
from orchestrator.schedulers.seam import Request
from orchestrator.spec.kinds import seconds
from orchestrator.version import __version__


def submit_first(plan: Plan, source: Path, after: Mapping[str, Path] | None = None) -> RunFolder:
    """Make the run of a plan whose spec lies in `source`, and submit its first attempt.

    `after` holds the run folders of the jobs that have to complete first. A run that the scheduler refuses leaves
    nothing behind. Raises SiteError or UserError for that, NoAnswer when nobody knows (the run then stays).
    """
    run, attempt = RunFolder(plan.folder), RunFolder(plan.folder).attempt(1)
    image = run_image.fitting(plan)
    gathered, diff = provenance.gather(source)
    request = plan.request(attempt, tuple(after or ()))
    text = script(plan, attempt, request)
    private.make(plan.folder.parent)
    with index.announced(run):
        try:
            made = RunFolder(run.unfinished)
            made.folder.mkdir(mode=0o700)
            made.attempts.mkdir(mode=0o700)
            write_text(made.spec, plan.spec_text)
            write_json(made.provenance, gathered)
            if diff:
                write_text(made.code_diff, diff)
            if image:
                run_image.keep(made, image)
            write_json(made.plan, plan.as_json())
            if plan.code:
                _freeze(plan, made)
            _make(plan, made.attempt(1), text)
            ledger.append(made.ledger, Submitting(1, request.called, after=_folders(after)))
            made.folder.rename(run.folder)
        except UserError:
            index.forget(run)
            raise
        except (OSError, SiteError) as error:
            index.forget(run)
            reason = error.strerror if isinstance(error, OSError) else error
            raise SiteError(f"{run.folder}: the run folder cannot be made: {reason}") from None
    try:
        job = _submit(plan, attempt, request)
    except NoAnswer:
        raise
    except (SiteError, UserError):
        index.forget(run)
        raise
    _submitted(plan, run, 1, job)
    return run


def start(plan: Plan, run: RunFolder, number: int, *, resumes: str | None) -> None:
    """Submit a later attempt of a run, which goes on from the checkpoint `resumes`; the caller holds the run's lock.

    Raises SiteError when the scheduler refuses (the attempt is then taken back), NoAnswer when nobody knows whether it
    was submitted (it then stays).
    """
    attempt = run.attempt(number)
    request = plan.request(attempt)
    text = script(plan, attempt, request)
    ledger.append(run.ledger, Submitting(number, request.called, resumes=resumes))
    try:
        _discard(attempt.unfinished)  # of a client that was killed
        _make(plan, attempt.unfinished, text)
        attempt.unfinished.folder.rename(attempt.folder)
    except (OSError, SiteError) as error:
        _discard(attempt.unfinished)
        reason = error.strerror if isinstance(error, OSError) else error
        raise SiteError(f"{attempt.folder}: the attempt cannot be made: {reason}") from None
    try:
        job = _submit(plan, attempt, request)
    except NoAnswer:
        raise
    except (SiteError, UserError) as error:
        with contextlib.suppress(OSError):
            attempt.folder.rename(attempt.unfinished.folder)
        _discard(attempt.unfinished)
        ledger.append(run.ledger, Refused(number, str(error)))
        raise
    _submitted(plan, run, number, job)


def _discard(attempt: Attempt) -> None:
    shutil.rmtree(attempt.folder, ignore_errors=True)


def _make(plan: Plan, attempt: Attempt, text: str) -> None:
    """Write all that the job of an attempt needs to begin."""
    attempt.folder.mkdir(mode=0o700)
    write_json(attempt.plan, plan.as_json())
    write_text(attempt.script, text)


def _freeze(plan: Plan, run: RunFolder) -> None:
    """Copy the code of a command into its run. Raises UserError for code that is too large or cannot be read."""
    assert plan.code is not None
    own = [folder for folder in (plan.run.checkpoints.folder,) if folder and not os.path.isabs(folder)]
    frozen = freeze(plan.code, run.code, plan.run.code_limit_bytes, leave_out=own)
    for note in frozen.notes:
        print(f"torusrun: {plan.code}: {note}", file=sys.stderr)
    write_json(run.code_record, frozen.record())


def _folders(after: Mapping[str, Path] | None) -> tuple[str, ...]:
    return tuple(map(str, (after or {}).values()))


def _submit(plan: Plan, attempt: Attempt, request: Request) -> str:
    """Ask the scheduler for the attempt's job; its id. Raises NoAnswer where there may be a job all the same."""
    return client.of(plan.site).submit(attempt.script, request, cwd=attempt.folder)


def _submitted(plan: Plan, run: RunFolder, number: int, job: str) -> None:
    ledger.append(run.ledger, Submitted(number, job, plan.site.scheduler))


def with_time(plan: Plan, text: str) -> Plan:
    """The plan with another time limit. Raises UserError where `text` is no duration, or too short a one."""
    try:
        changed = replace(plan, run=replace(plan.run, time_s=seconds(text)))
    except ValueError as error:
        raise UserError(f"--time: {text!r} {error}") from None
    if changed.run.time_s <= plan.site.stop_before_s:
        raise UserError(f"--time must be longer than the site's stop_before ({plan.site.stop_before_s:g}s)")
    return changed


def script(plan: Plan, attempt: Attempt, request: Request | None = None) -> str:
    """The exact text of an attempt's job script."""
    return job_script(
        schedulers.get(plan.site.scheduler),
        request or plan.request(attempt),
        attempt=attempt.folder,
        entry=process.module(plan.python, "orchestrator.job.attempt", attempt.folder),
        title=f"torusrun {__version__}: attempt {attempt.number} of run {plan.run_id}",
        modules=plan.site.modules,
        environment={**_python_path(), **plan.environment},
    )


def _python_path() -> dict[str, str]:
    """What Python needs here it needs in the job too, and not every scheduler hands the environment on."""
    path = process.absolute_only(os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": path} if path else {}
