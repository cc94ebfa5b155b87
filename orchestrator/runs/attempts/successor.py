"""The next attempt of a run, submitted by the job of the previous attempt if its training wants other nodes."""

from __future__ import annotations

from orchestrator.base.process import NoAnswer
from orchestrator.base.states import State
from orchestrator.runs.attempts import submit
from orchestrator.runs.attempts.alone import alone
from orchestrator.runs.folder import ledger
from orchestrator.runs.folder.changes import Changes
from orchestrator.runs.folder.events import CancelRequested, Submitted
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.plan import plan_files
from orchestrator.runs.plan.attempt_plan import AttemptPlan, derive
from orchestrator.runs.state import which
from orchestrator.runs.state.decide import History, Policy, Resume, Step, decide
from orchestrator.schedulers import client
from training.checkpoint.manifest import newest_complete

LOCK_S = 120.0  # a client that resumes a run holds its lock during the submission


def submit_next(run: RunFolder, number: int) -> Step:
    """Submit the attempt that follows attempt `number`, on the nodes that the newest checkpoint's phase wants.

    It returns the decision: Resume has the attempt that follows, which the user may have submitted meanwhile. Raises
    SiteError or UserError if the submission failed, NoAnswer if it is unknown.
    """
    with alone(run, LOCK_S):
        events, checkpoint = ledger.events(run.ledger), newest_complete(run.checkpoints)
        before, epochs = plan_files.read_attempt(run, number).plan, checkpoint.epoch if checkpoint else 0.0
        planned = derive(
            plan_files.read_first(run, number), plan_files.history(run, events), number + 1, Changes(), epochs
        )
        history = History(
            number,
            State.RUNNING,
            newest=which.newest_of(run),
            cancelled=ledger.last(events, CancelRequested, number) is not None,
            other_nodes=checkpoint is not None and planned.plan.run.nodes != before.run.nodes,
            epochs=epochs,
        )
        step = decide(history, Policy.JOB)
        if checkpoint and isinstance(step, Resume) and step.attempt > history.newest:
            _submit(run, planned, checkpoint.name)
        return step


def _submit(run: RunFolder, planned: AttemptPlan, checkpoint: str) -> None:
    try:
        submit.later(planned, run, checkpoint, follows=planned.number - 1)
    except NoAnswer:
        _cancel_too(run, planned.number - 1, None)
        raise
    submitted = ledger.last(ledger.events(run.ledger), Submitted, planned.number)
    _cancel_too(run, planned.number - 1, submitted.job if submitted else None)


def _cancel_too(run: RunFolder, number: int, job: str | None) -> None:
    """Cancel the next attempt too, if a request to cancel came during its submission."""
    if not ledger.last(ledger.events(run.ledger), CancelRequested, number):
        return
    ledger.append(run.ledger, CancelRequested(number + 1))
    if job:
        client.of(plan_files.read_plan(run, number + 1).site).cancel(job)
