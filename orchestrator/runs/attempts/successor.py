"""The next attempt of a run, submitted by the job of the attempt before, whose training wants other nodes."""

from __future__ import annotations

from orchestrator.base.errors import SiteError
from orchestrator.base.process import NoAnswer
from orchestrator.runs.attempts import submit
from orchestrator.runs.attempts.alone import alone
from orchestrator.runs.folder import ledger
from orchestrator.runs.folder.changes import Changes
from orchestrator.runs.folder.events import CancelRequested, Submitted
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.plan import plan_files
from orchestrator.runs.plan.attempt_plan import derive
from orchestrator.schedulers import client
from training.checkpoint.manifest import newest_complete

LOCK_S = 120.0  # who resumes a run holds its lock while its scheduler is asked


class Cancelled(SiteError):
    """The user asked for the end of the attempt: no other one follows it."""


def submit_next(run: RunFolder, number: int) -> int:
    """Submit the attempt that follows attempt `number`, on the nodes that the newest checkpoint's phase wants.

    The number of the attempt that follows: another one than the next where its user has resumed the run meanwhile.
    Raises Cancelled, SiteError or UserError where none follows, NoAnswer where nobody knows.
    """
    with alone(run, LOCK_S):
        events = ledger.events(run.ledger)
        if ledger.last(events, CancelRequested, number):
            raise Cancelled("cancelled by its user")
        newest = max((n for n, stands in ledger.standing(events).items() if stands), default=number)
        if newest > number:
            return newest
        return _submit(run, number)


def _submit(run: RunFolder, number: int) -> int:
    before, checkpoint = plan_files.read_attempt(run, number).plan, newest_complete(run.checkpoints)
    history = plan_files.history(run, ledger.events(run.ledger))
    epochs = checkpoint.epoch if checkpoint else 0.0
    planned = derive(plan_files.read_first(run, number), history, number + 1, Changes(), epochs)
    if checkpoint is None or planned.plan.run.nodes == before.run.nodes:  # it would do the same again
        raise SiteError(f"after epoch {epochs:g}, by the newest checkpoint, no other number of nodes is wanted")
    try:
        submit.later(planned, run, checkpoint.name)
    except NoAnswer:
        _cancel_too(run, number, None)
        raise
    submitted = ledger.last(ledger.events(run.ledger), Submitted, planned.number)
    _cancel_too(run, number, submitted.job if submitted else None)
    return planned.number


def _cancel_too(run: RunFolder, number: int, job: str | None) -> None:
    """Hand on a request to cancel that came while the next attempt was being submitted."""
    if not ledger.last(ledger.events(run.ledger), CancelRequested, number):
        return
    ledger.append(run.ledger, CancelRequested(number + 1))
    if job:
        client.of(plan_files.read_plan(run, number + 1).site).cancel(job)
