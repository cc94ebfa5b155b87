"""The next attempt of a run: from its newest checkpoint, with what its user changes."""

from __future__ import annotations

import contextlib
from pathlib import Path

from orchestrator.base import lock
from orchestrator.base.errors import SiteError, UserError
from orchestrator.base.states import State
from orchestrator.runs.attempts import in_hold, submit
from orchestrator.runs.attempts.in_hold import Allocation
from orchestrator.runs.folder import allocation, claim, index, ledger
from orchestrator.runs.folder.changes import Changes
from orchestrator.runs.folder.events import Started
from orchestrator.runs.folder.records import End
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.image import recorded as image_kept
from orchestrator.runs.plan import plan_files
from orchestrator.runs.plan.attempt_plan import derive
from orchestrator.runs.plan.plan import Plan
from orchestrator.runs.program import command
from orchestrator.runs.state import current
from orchestrator.runs.state.view import View
from orchestrator.schedulers import client
from training.checkpoint.manifest import newest_complete

FORCE = "if you know that it is not at work any more, resume it with --force"


def resume(
    run: RunFolder,
    changes: Changes,
    *,
    force: bool = False,
    new_image: bool = False,
    into: Allocation | None = None,
) -> Path | None:
    """Submit the next attempt, with these changes; the checkpoint from which it goes on, None for the beginning.

    Raises UserError when the run is COMPLETED, when the changes do not fit, or when it is not certain that its newest
    attempt is over. `force` says that the user knows better: should that attempt be at work all the same, it ends when
    the new one begins, and no two of them train at once (runs/claim.py). It goes `into` a held allocation, or to the
    scheduler.
    """
    index.own(run)
    with lock.alone(run):
        return _resume(run, current.look(run), changes, force, new_image, into)


def _resume(
    run: RunFolder, seen: View, changes: Changes, force: bool, new_image: bool, into: Allocation | None
) -> Path | None:
    if allocation.is_held(run):
        raise UserError(f"{run.run_id} held an allocation, and no run: `torusrun hold` asks for another one")
    if seen.state is State.COMPLETED:
        raise UserError(f"{run.run_id} is COMPLETED: there is nothing left to resume")
    if not force and (why := _uncertain(run, seen) or _never_again(run, seen)):
        raise UserError(f"{run.run_id} is {seen.state.value} ({seen.reason or f'attempt {seen.attempt}'}): {why}")
    history = plan_files.history(run, ledger.events(run.ledger))
    plan = plan_files.read_first(run, seen.attempt)
    checkpoint, epochs = _checkpoint(run, plan)
    planned = derive(plan, history, seen.attempt + 1, changes, epochs)
    _same_image(run, planned.plan, new_image)
    submit.later(planned, run, checkpoint.name if checkpoint else None, into)
    if not seen.state.over and seen.job:  # its user says that it is gone; what is left of it is not to hold nodes
        with contextlib.suppress(SiteError):
            if not in_hold.end(run, seen.attempt):
                client.of(planned.plan.site).cancel(seen.job)
    return checkpoint


def _uncertain(run: RunFolder, seen: View) -> str:
    """Why the newest attempt may still be at work, and what to do; '' when it certainly is not."""
    at_work = claim.held(run.attempt(seen.attempt))
    if at_work and seen.state.over:
        return f"processes of its ranks are still at work; ask again in a moment, or {FORCE}"
    if seen.state in (State.PENDING, State.RUNNING):
        return f"resume it once it is over, or cancel it first; {FORCE}"
    if seen.state is State.UNKNOWN:
        return f"ask again later, or, {FORCE}"
    begun = ledger.last(ledger.events(run.ledger), Started, seen.attempt)
    if seen.state is State.LOST and seen.job and not (begun and at_work is False):
        return f"it is not certain that its job is gone; {FORCE}"
    return ""


def _never_again(run: RunFolder, seen: View) -> str:
    """Why another attempt would fail as this one did, by the program's own exit code; '' where it did not say so."""
    try:
        end = End.read(run.attempt(seen.attempt).end)
    except SiteError:
        return ""
    return "" if end is None or end.again else "its exit code asks for no other attempt; mend it, then resume --force"


def _checkpoint(run: RunFolder, plan: Plan) -> tuple[Path | None, float]:
    """The newest checkpoint, and how many epochs our training had come by then."""
    if plan.run.command:
        return command.newest_checkpoint(plan, run), 0.0
    newest = newest_complete(run.checkpoints)
    return (newest.path, newest.epoch) if newest else (None, 0.0)


def _same_image(run: RunFolder, plan: Plan, new_image: bool) -> None:
    """Raises UserError when the run's image is not the one it began with, unless a new one is meant."""
    before = image_kept.kept(run)
    if before and new_image:
        from orchestrator.runs.image import checking

        image_kept.keep(run, checking.fitting(plan) or before)
    elif before and (how := image_kept.changed(before)):
        raise UserError(
            f"{before.path} is not the image that {run.run_id} began with: {how}; --new-image takes it as it is"
        )
