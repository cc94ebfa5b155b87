"""Submits a sweep: all its members at first, or new attempts of those that failed.

A client can be killed at any moment. One rename makes all members of a sweep at once, and their ledgers have the names
of their jobs before these are submitted. So a member without a job is LOST, and `resume` submits it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.json_files import write_text
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.base.terminal.remarks import say
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.attempts.submit import accepted, add_jobs, unsure
from torusrun.orchestrator.run.folder import index, kept_secrets, ledger
from torusrun.orchestrator.run.folder.events import Ended, KeptGoing, Submitted
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder, SweepRecord, number_of
from torusrun.orchestrator.run.image.recorded import Image
from torusrun.orchestrator.run.plan import attempt_plan, secret_values
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.plan.job_request import all_without_bad_nodes
from torusrun.orchestrator.run.plan.role_plans import of_images
from torusrun.orchestrator.run.state import next_attempt
from torusrun.orchestrator.run.state.awaited import Awaited
from torusrun.orchestrator.schedulers import client
from torusrun.orchestrator.sweeps.batches import NOBODY, AtWork, Batch, MemberAttempt, batches
from torusrun.orchestrator.sweeps.plans import PlannedSweep

NO_JOBS = "it has no jobs"


def first(
    sweep: PlannedSweep, source: Path, after: Sequence[Awaited] = (), origin: create.Origin | None = None
) -> list[RunFolder]:
    """Make all members of a sweep whose spec is in `source`, and submit them, to begin after these jobs.

    `origin` is the origin of its files, if from another machine. If its first array, or its first job, is refused,
    nothing is left. Raises SiteError or UserError for a refused job, NoAnswer if it is unknown whether it was
    submitted; members that were made stay then.
    """
    members = [member.run for member in sweep.members]
    parts = proposed(sweep, after)
    _make(sweep, parts, source, origin)
    with sweep.folder.alone():
        try:
            submit(parts, sweep.at_once)
        except NoAnswer:
            raise
        except (SiteError, UserError):
            if not any(ledger.last(ledger.events(run.ledger), Submitted, 1) for run in members):
                index.forget_sweep(members)
            raise
    return members


def proposed(sweep: PlannedSweep, after: Sequence[Awaited] = ()) -> list[Batch]:
    """The batches that `first` submits. This makes and submits nothing.

    Raises UserError if a member has no request, or if the site has a login node.
    """
    if sweep.site.host:
        raise UserError(f"the site is reached through {sweep.site.host}: this is done there, or by `torusrun submit`")
    firsts = without_bad_hosts([attempt_plan.first(member.plan) for member in sweep.members])
    members = [(member.run, planned) for member, planned in zip(sweep.members, firsts, strict=True)]
    return batches(sweep.folder, members, sweep.at_once, after)


def without_bad_hosts(planned: Sequence[AttemptPlan]) -> list[AttemptPlan]:
    """The plans without bad hosts, which are printed once."""
    remaining = all_without_bad_nodes(planned)
    for line in dict.fromkeys(line for plan in remaining for line in plan.left_out.lines):
        say(line)
    return remaining


def _make(sweep: PlannedSweep, parts: Sequence[Batch], source: Path, origin: create.Origin | None) -> None:
    """Make the folder of a sweep with all its members. Raises the errors of `attempts.create.run`."""
    attempts = sorted((member for part in parts for member in part.attempts), key=lambda member: number_of(member.run))
    images: dict[str, Image] = {}
    for plan in {(*of_images(member.planned.plan),): member.planned.plan for member in attempts}.values():
        images |= create.images_of(plan)
    facts = create.facts_of(attempts[0].planned.plan, source, origin)
    folder, unfinished = sweep.folder, sweep.folder.unfinished
    private.make(folder.folder.parent, sweep.site.umask)
    with index.announced(*(member.run for member in attempts)), private.umask(sweep.site.umask):
        try:
            private.new(unfinished.folder, sweep.site.umask)
            copies: dict[object, RunFolder] = {}
            for member in attempts:
                _fill(member, images, facts, copies)
            for part in parts:
                if part.array:
                    part.make(unfinished.array(int(part.array.folder.name)))
            SweepRecord(tuple(member.settings for member in sweep.members), sweep.at_once).write(unfinished)
            unfinished.folder.rename(folder.folder)
        except (OSError, SiteError, UserError) as error:
            index.forget_sweep([member.run for member in attempts])
            if isinstance(error, UserError):
                raise
            reason = error.strerror if isinstance(error, OSError) else error
            raise SiteError(f"{folder.folder}: the sweep cannot be made: {reason}") from None


def _fill(
    member: MemberAttempt, images: Mapping[str, Image], facts: create.Origin, copies: dict[object, RunFolder]
) -> None:
    """Make the folder of a member, with its own of the `images`.

    `copies` are the members with the copies of code that others share.
    """
    plan, made = member.planned.plan, RunFolder(member.run.unfinished)
    code = plan.code and (plan.code, tuple(create.no_code(plan)), plan.secret_files)
    first = copies.setdefault(code, made) if code else made
    recipe = {"recipe": plan.recipe} if plan.recipe else {}
    own = replace(facts, provenance={**facts.provenance, **recipe})
    its = {name: images[name] for name in of_images(plan)}
    create.fill(made, member.planned, member.script, its, own, None if first is made else first)
    kept_secrets.keep(made, secret_values.read(plan))
    ledger.append(made.ledger, member.event)


def submit(parts: Sequence[Batch], at_once: int, before: AtWork = NOBODY) -> None:
    """Submit batches whose attempts are made and announced in their ledgers.

    At most `at_once` members run at the same time (0: any number), with those that are `before` them: arrays follow one
    another, and a single job waits for the job `at_once` places before it. After an error the remaining members are
    recorded as not submitted.
    """
    with SweepFolder(parts[0].attempts[0].run.folder.parent).submitting():
        _in_order(parts, at_once, before)


def _in_order(parts: Sequence[Batch], at_once: int, before: AtWork) -> None:
    arrays: list[str] = []
    singles = list(before.singles)
    for place, part in enumerate(parts):
        follows = part.array or len(singles) < at_once
        waits = arrays[-1:] or before.arrays if follows else singles[len(singles) - at_once :][:1]
        try:
            job = _submit(part, waits if at_once else ())
        except TorusrunError as error:
            known = isinstance(error, (SiteError, UserError)) and not isinstance(error, NoAnswer)
            left = [member for later in parts[place if known else place + 1 :] for member in later.attempts]
            if place or not known:
                _not_submitted(left, error)
            raise
        (arrays if part.array else singles).append(job)


def _submit(part: Batch, after_any: Sequence[str]) -> str:
    """Submit a batch, and write the jobs into the ledgers of its members; the id of its last job."""
    asked, script = part.after(after_any), part.script_path()
    with private.umask(part.site.umask):  # Slurm and local sites make the job's output files with it
        secret = part.attempts[0].planned.plan.is_private and not part.array
        write_text(script, part.text(after_any), secret=secret)
        try:
            job = client.of(part.site).submit(script, asked, cwd=script.parent)
            for member in part.attempts:
                task = member.event.task
                own = job if task is None else client.of(part.site).scheduler.task_id(job, task)
                accepted(member.run, Submitted(member.planned.number, own, part.site.scheduler))
        except NoAnswer as error:
            raise unsure(error, part.attempts[0].run.folder.parent.name, asked.called) from None
    member = part.attempts[0]
    if part.array or not member.planned.plan.jobs_in_turn:
        return job
    with private.umask(part.site.umask):
        add_jobs(member.planned, member.run, asked, job)
    return next_attempt.jobs_of(ledger.events(member.run.ledger), member.planned.number)[-1]


def _not_submitted(attempts: Sequence[MemberAttempt], error: TorusrunError) -> None:
    """Record that these attempts have no job, so that `resume` submits their members at once.

    If the disk is full they are LOST a minute later, and `resume` submits them then.
    """
    for member in attempts:
        reason = f"it was not submitted: {error}; `torusrun resume {member.run.folder.parent.name}` submits it"
        with contextlib.suppress(SiteError):
            ledger.append(member.run.ledger, Ended(member.planned.number, State.FAILED, reason, Cause.SCHEDULER))
            if member.event.jobs:
                ledger.append(member.run.ledger, KeptGoing(member.planned.number, NO_JOBS))
