"""New attempts of the members of a sweep that failed, submitted together as at first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.process import NoAnswer
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.base.terminal.remarks import say
from torusrun.orchestrator.run.attempts import create
from torusrun.orchestrator.run.attempts.resume import MayNotResume, next_attempt
from torusrun.orchestrator.run.folder import index, ledger, settled
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.events import Changes, Ended, Refused, Submitted
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.run.state.attempts import newest_of
from torusrun.orchestrator.run.state.decide import Policy
from torusrun.orchestrator.run.state.poll import views
from torusrun.orchestrator.run.state.view import View, counts
from torusrun.orchestrator.sweeps.batches import NOBODY, Batch, MemberAttempt, at_work, batches
from torusrun.orchestrator.sweeps.submit import submit, without_bad_hosts
from torusrun.training.counted import counted

MOST_SHOWN = 8  # members that are left out


def resume(
    sweep: SweepFolder, members: Sequence[RunFolder], changes: Changes, *, force: bool = False
) -> list[RunFolder]:
    """Submit a new attempt of each of these members that is over and not COMPLETED; these members.

    Members that may not be resumed now are left out and printed, with the reason. With `force`, only those that are
    known to be at work are left out. Members that are at work count for the number that may run at the same time.
    Raises UserError if no member can be resumed, or if the changes do not fit, SiteError if the scheduler refuses them:
    then the attempts are removed.
    """
    for run in members:
        index.own(run)
    with sweep.alone():
        record = sweep.read()
        seen = views(members, fresh=True)
        chosen = _next(members, seen, changes, force)
        planned = without_bad_hosts([attempt for _, attempt, _ in chosen])
        resumes = {run: checkpoint for run, _, checkpoint in chosen}
        attempts = [(run, attempt) for (run, _, _), attempt in zip(chosen, planned, strict=True)]
        at_once, before = record.at_once if record else 0, NOBODY
        if at_once:
            others = [view for run, view in zip(members, seen, strict=True) if run not in resumes]
            at_once, before = at_work(others).beside(at_once)
        parts = [
            replace(part, attempts=tuple(_from(member, resumes[member.run]) for member in part.attempts))
            for part in batches(sweep, attempts, at_once, first_array=_next_array(sweep))
        ]
        _make(parts)
        try:
            submit(parts, at_once, before)
        except NoAnswer:
            raise
        except (SiteError, UserError) as error:
            _take_back([member for part in parts for member in part.attempts], str(error))
            raise
    return list(resumes)


def _next(
    members: Sequence[RunFolder], seen: Sequence[View], changes: Changes, force: bool
) -> list[tuple[RunFolder, AttemptPlan, str | None]]:
    """The members to resume, each with the plan of its next attempt and the checkpoint from which it continues."""
    over = [(run, view) for run, view in zip(members, seen, strict=True) if _is_meant(view.state, force)]
    if not over:
        raise UserError(f"no member has failed or was cancelled ({counts(seen)}): there is nothing to resume")
    chosen, left_out = [], []
    for run, view in over:
        try:
            planned, checkpoint = next_attempt(run, view, changes, Policy.FORCED if force else Policy.USER)
        except MayNotResume as error:
            left_out.append(str(error))
            continue
        chosen.append((run, planned, checkpoint.name if checkpoint else None))
    if left_out[MOST_SHOWN:]:
        left_out[MOST_SHOWN:] = [f"and {counted(len(left_out) - MOST_SHOWN, 'other member')}"]
    if not chosen:
        raise UserError("no member can be resumed: " + "\n".join(left_out))
    for line in left_out:
        say(f"left out: {line}")
    return chosen


def _is_meant(state: State, force: bool) -> bool:
    return (state.over and state is not State.COMPLETED) or (force and state is State.UNKNOWN)


def _from(member: MemberAttempt, checkpoint: str | None) -> MemberAttempt:
    return replace(member, event=replace(member.event, resumes=checkpoint))


def _next_array(sweep: SweepFolder) -> int:
    """The number of the next array; never one that a client has used."""
    numbers = [int(path.name) for path in sweep.arrays.glob("[0-9]*") if path.name.isdigit()]
    return max(numbers, default=0) + 1


def _make(parts: Sequence[Batch]) -> None:
    """Make the folders of the arrays and of the attempts, with the intents in the ledgers.

    An array comes first, so that its number is used once. Raises UserError if another client has resumed a member.
    """
    done: list[MemberAttempt] = []
    try:
        for part in parts:
            if part.array:
                with private.umask(part.site.umask):
                    part.make(part.array)
            for member in part.attempts:
                _make_attempt(member)
                done.append(member)
    except (SiteError, UserError) as error:
        _take_back(done, str(error))
        raise


def _make_attempt(member: MemberAttempt) -> None:
    with alone(member.run):
        if newest_of(member.run) != member.planned.number - 1:
            raise UserError(f"another client has resumed {member.run.run_id} at the same time: resume the sweep again")
        settled.forget([member.run.run_id])
        ledger.append(member.run.ledger, member.event)
        create.attempt(member.attempt, member.planned, member.script)


def _take_back(attempts: Sequence[MemberAttempt], why: str) -> None:
    """Remove the attempts without a job or a recorded end. An array folder stays: its number is used."""
    for member in attempts:
        events = ledger.events(member.run.ledger)
        if not any(ledger.last(events, kind, member.planned.number) for kind in (Submitted, Ended)):
            create.take_back(member.attempt)
            ledger.append(member.run.ledger, Refused(member.planned.number, why))
