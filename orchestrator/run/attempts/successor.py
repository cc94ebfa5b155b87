"""The next attempt of a run, submitted by the job of the previous attempt if its training wants other nodes."""

from __future__ import annotations

import socket

from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.attempts import submit
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.events import CancelRequested, Changes, Submitted
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import derive
from torusrun.orchestrator.run.plan.phase_groups import stretch_at
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.state.attempts import newest_of
from torusrun.orchestrator.run.state.decide import History, Policy, Resume, Step, Stop, decide
from torusrun.orchestrator.schedulers import client
from torusrun.training.checkpoint.manifest import newest_complete

LOCK_S = 120.0  # a client that resumes a run holds its lock during the submission


def hand_over(run: RunFolder, number: int, plan: Plan) -> End:
    """Submit the next attempt of a training that has reached the end of its stretch; return the end of this attempt.

    `plan` is the plan of attempt `number`.
    """
    following = stretch_at(plan.run, plan.stretch[1]) if plan.stretch else None
    wanted = f"phase {following.first} needs {following.on_nodes}" if following else "the training needs other nodes"
    try:
        step = submit_next(run, number, plan)
    except NoAnswer as error:
        return ended(How.PERHAPS_HANDED_OVER, wanted=wanted, next=number + 1, why=error, followed_by=number + 1)
    except TorusrunError as error:
        step = Stop(str(error))
    if isinstance(step, Resume):
        return ended(How.HANDED_OVER, wanted=wanted, next=step.attempt, followed_by=step.attempt)
    if isinstance(step, Stop) and step.by_user:
        return ended(How.CANCELLED)
    to_do = f"`torusrun resume {run.run_id}` continues with {following.on_nodes if following else 'them'}"
    return ended(How.NOT_HANDED_OVER, wanted=wanted, host=socket.gethostname(), why=step.why, to_do=to_do)


def submit_next(run: RunFolder, number: int, plan: Plan) -> Step:
    """Submit the attempt that follows attempt `number`, on the nodes that the newest checkpoint's phase wants.

    It returns the decision: Resume has the attempt that follows, which the user may have submitted meanwhile. Raises
    SiteError or UserError if the submission failed, NoAnswer if it is unknown.
    """
    with alone(run, LOCK_S):
        events, checkpoint = ledger.events(run.ledger), newest_complete(run.checkpoints)
        epochs = checkpoint.epoch if checkpoint else 0.0
        following = stretch_at(plan.run, epochs) if checkpoint else None
        history = History(
            number,
            State.RUNNING,
            newest=newest_of(run),
            cancelled=ledger.last(events, CancelRequested, number) is not None,
            other_nodes=following is not None and following.nodes != plan.run.nodes,
        )
        step = decide(history, Policy.JOB)
        if checkpoint and isinstance(step, Resume) and step.attempt > history.newest:
            first, known = plan_files.read_first(run, number), plan_files.history(run, events)
            planned = derive(first, known, number + 1, Changes(), epochs)
            try:
                submit.later(planned, run, checkpoint.name, follows=number)
            except NoAnswer:
                _cancel_too(run, number)
                raise
            _cancel_too(run, number)
        return step


def _cancel_too(run: RunFolder, number: int) -> None:
    """Cancel the next attempt too, if a request to cancel came during its submission."""
    events = ledger.events(run.ledger)
    if not ledger.last(events, CancelRequested, number):
        return
    ledger.append(run.ledger, CancelRequested(number + 1))
    if submitted := ledger.last(events, Submitted, number + 1):
        client.of(plan_files.read_plan(run, number + 1).site).cancel(submitted.job)
