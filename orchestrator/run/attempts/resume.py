"""The next attempt of a run: from its newest checkpoint, with the changes of its user."""

from __future__ import annotations

import contextlib
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.terminal.remarks import say
from torusrun.orchestrator.keys.run import Grow
from torusrun.orchestrator.run.attempts import in_hold, submit
from torusrun.orchestrator.run.attempts.cancel import alive
from torusrun.orchestrator.run.attempts.in_hold import Allocation
from torusrun.orchestrator.run.folder import allocation, claim, index, ledger
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.events import Changes, Started
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.image import recorded as image_kept
from torusrun.orchestrator.run.plan import plan_files
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan, derive
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.program.command import continues_from, newest_checkpoint
from torusrun.orchestrator.run.state.decide import History, More, Policy, Resume, decide
from torusrun.orchestrator.run.state.next_attempt import changes_for, more_after
from torusrun.orchestrator.run.state.poll import look
from torusrun.orchestrator.run.state.view import View
from torusrun.orchestrator.schedulers import client


class MayNotResume(UserError):
    """The run gets no other attempt now."""


def resume(
    run: RunFolder,
    changes: Changes,
    *,
    force: bool = False,
    new_image: bool = False,
    into: Allocation | None = None,
) -> Path | None:
    """Submit the next attempt, with these changes; the checkpoint from which it continues, None for the beginning.

    Raises UserError if the run is COMPLETED, if the changes do not fit, or if it is not certain that its newest attempt
    is over. `force` skips this last check: if that attempt still runs, it ends when the new attempt begins, and the two
    never train at once (run/folder/claim.py). The attempt is submitted `into` a held allocation, or to the scheduler.
    """
    index.own(run)
    with alone(run):
        seen = look(run)
        policy = Policy.FORCED if force else Policy.USER
        planned, checkpoint = next_attempt(run, seen, changes, policy, new_image=new_image)
        submit.later(planned, run, checkpoint.name if checkpoint else None, into=into)
        if not seen.state.over and seen.job:  # forced: the former attempt must not keep nodes
            with contextlib.suppress(SiteError):
                if not in_hold.end(run, seen.attempt):
                    asks = client.of(planned.plan.site)
                    asks.cancel(*alive(run, seen.attempt, seen.job, asks))
    return checkpoint


def next_attempt(
    run: RunFolder, seen: View, changes: Changes, policy: Policy, *, new_image: bool = False
) -> tuple[AttemptPlan, Path | None]:
    """(the plan of the attempt after that of the view `seen`, the checkpoint from which it continues).

    Raises UserError as `resume` does: MayNotResume if the run itself is the reason.
    """
    known = _history(run, seen)
    step = decide(known, policy)
    if not isinstance(step, Resume):
        who = f"; at work: {claim.holders(run.attempt(seen.attempt))}" if known.at_work else ""
        raise MayNotResume(f"{run.run_id} {step.why}{who}")
    if step.more:
        say(f"{run.run_id}: attempt {seen.attempt} ended for lack of {step.more.what}, the next asks for {step.more}")
    plan, history = plan_files.read_first(run, seen.attempt), plan_files.history(run, ledger.events(run.ledger))
    checkpoint = continues_from(plan, run)
    planned = derive(plan, history, step.attempt, changes_for(step.more).then(changes))
    _same_image(run, planned.plan, new_image)
    return planned, checkpoint


def _history(run: RunFolder, seen: View) -> History:
    """The history of a run with this view of its newest attempt."""
    attempt = run.attempt(seen.attempt)
    at_work = claim.held(attempt)
    end = End.readable(attempt.end)  # after the lock, before whose release an attempt writes its end
    return History(
        seen.attempt,
        seen.state,
        seen.reason,
        job=seen.job,
        begun=ledger.last(ledger.events(run.ledger), Started, seen.attempt) is not None,
        at_work=at_work,
        again=end is None or end.again,
        held=allocation.is_held(run),
        more=_more(run, seen.attempt),
    )


def _more(run: RunFolder, number: int) -> More | None:
    """What the attempt after attempt `number` asks for more of."""
    with contextlib.suppress(SiteError):  # the decision can do without a plan that cannot be read
        plan = plan_files.read_plan(run, number)
        if plan.run.keep_going.grow != Grow():
            return more_after(ledger.events(run.ledger), plan, number, newest_checkpoint(plan, run), {})
    return None


def _same_image(run: RunFolder, plan: Plan, new_image: bool) -> None:
    """Raise UserError if an image of the run has changed since its beginning, unless `new_image` allows it."""
    images = image_kept.all_kept(run, plan.run.image)
    if images and new_image:
        from torusrun.orchestrator.run.image import checking

        image_kept.keep(run, checking.all_fitting(plan, {}), plan.run.image)
        return
    for before in images.values():
        if how := image_kept.changed(before):
            raise UserError(
                f"{before.path} is not the image that {run.run_id} began with: {how}; --new-image accepts the changed "
                "image"
            )
