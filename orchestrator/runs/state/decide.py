"""Decides whether a run gets its next attempt, none, or none yet. A pure function of its history."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.runs.state.in_vain import MOST_AT_FIRST, SAME_BAD_HOST
from torusrun.training.counted import counted

FORCE = "if you know that it is not running any more, resume it with --force"


@dataclass(frozen=True)
class Resume:
    """This attempt is the next one."""

    attempt: int


@dataclass(frozen=True)
class Stop:
    """No attempt follows. Messages print `why` after the run's name. `by_user` says that the user wants this.

    `hosts` are the bad hosts that are the cause, if any are. `later_job` says that a later job of the same submission
    works for the run: it must stay.
    """

    why: str
    by_user: bool = False
    hosts: tuple[str, ...] = ()
    later_job: bool = False


@dataclass(frozen=True)
class Wait:
    """No attempt follows yet. Messages print `why` after the run's name. With `for_s`, the job asks again after it."""

    why: str
    for_s: float = 0.0


Step = Resume | Stop | Wait


@dataclass(frozen=True)
class History:
    """The known facts of a run. All concern `attempt`, except `newest`, the newest attempt that was not refused.

    `at_work` says whether a process of its ranks lives; None if unknown. `again` is False if the program forbids
    another attempt. `cancelled` says that the user asked for its end, `stopped` why it was asked to stop. `held` says
    that the run holds an allocation. `other_nodes` says that its next phase wants another number of nodes. `epochs` is
    the epoch of its newest checkpoint. `time_left` says whether the allocation in which it waits has time left.
    `cause` is why it ended. `in_vain` is the number of attempts in a row, up to this one, without a new checkpoint, of
    which `most_in_vain` are allowed. `same_error` says that the attempt before it failed alike (in_vain.py).
    `other_job` says that another job works for the run now, `ever_began` that an attempt since the last submission has
    begun. `not_handed_over` says that its next phase wants other nodes, and could not be submitted.
    `never_worked` says that all its attempts ended outside the program (in_vain.py). `bad_hosts` are the bad hosts that
    its jobs were given again and again.
    """

    attempt: int
    state: State
    reason: str = ""
    job: str | None = None
    newest: int = 0
    begun: bool = True
    at_work: bool | None = False
    again: bool = True
    cancelled: bool = False
    stopped: Cause | None = None
    held: bool = False
    other_nodes: bool = False
    epochs: float = 0.0
    time_left: bool = True
    cause: Cause = Cause.UNKNOWN
    in_vain: int = 0
    most_in_vain: int = 1
    same_error: bool = False
    other_job: bool = False
    ever_began: bool = False
    not_handed_over: bool = False
    never_worked: bool = False
    bad_hosts: tuple[str, ...] = ()


class Policy(Enum):
    """Who asks for the decision."""

    USER = "the user asks for another attempt"
    FORCED = "the user does, and knows that nothing is at work any more"
    JOB = "the job asks at the end of an attempt: it continues with another number of nodes"
    KEEP_GOING = "the job of a run that keeps going asks after an attempt, and before its first"
    KEEPER = "the keeper of a held allocation asks for an attempt that waits in it"


def decide(history: History, policy: Policy) -> Step:
    """The answer of the first rule that has one."""
    return next(step for rule in RULES[policy] if (step := rule(history)))


def _another(history: History) -> Step:
    return Resume(history.attempt + 1)


def _this(history: History) -> Step:
    return Resume(history.attempt)


def _held(history: History) -> Step | None:
    held = "held an allocation, and no run: `torusrun hold` asks for another one"
    return Stop(held) if history.held else None


def _completed(history: History) -> Step | None:
    return Stop("is COMPLETED: there is nothing left to resume") if history.state is State.COMPLETED else None


def _done(history: History) -> Step | None:
    return Stop("is done") if history.state is State.COMPLETED else None


def _still_at_work(history: History) -> Step | None:
    """Wait unless it is certain that this attempt is over: two attempts must not train at once."""
    state = history.state
    if history.at_work and state.over:
        return _not_yet(history, f"processes of its ranks are still at work; ask again in a moment, or {FORCE}")
    if state in (State.PENDING, State.RUNNING):
        return _not_yet(history, f"resume it once it is over, or cancel it first; {FORCE}")
    if state is State.UNKNOWN:
        return _not_yet(history, f"ask again later, or, {FORCE}")
    gone = history.begun and history.at_work is False
    if state is State.LOST and history.job and not gone:
        return _not_yet(history, f"it is not certain that its job is gone; {FORCE}")
    return None


def _not_mine(history: History) -> Step | None:
    return Stop("continues in another job") if history.other_job else None


def _not_begun(history: History) -> Step | None:
    return None if history.begun else Resume(history.attempt)


def _would_fail_again(history: History) -> Step | None:
    """Stop if the cause is in the user's own files, or a run that it waits for."""
    if history.same_error:
        return Stop("two attempts in a row failed after the same step with the same error")
    if history.cause is Cause.SCHEDULER:
        return Stop("its dependency dropped it")
    again = history.cause in (Cause.CONFIGURATION, Cause.IMAGE) and not history.ever_began
    return Stop("another attempt would fail in the same way") if again else None


def _no_hand_over(history: History) -> Step | None:
    return Stop("its next phase needs other nodes, and no job could be submitted") if history.not_handed_over else None


def _same_bad_hosts(history: History) -> Step | None:
    named = f"{'host' if len(history.bad_hosts) == 1 else 'hosts'} {', '.join(history.bad_hosts)}"
    why = f"the bad {named} ended {SAME_BAD_HOST} jobs in a row before any rank started"
    return Stop(why, hosts=history.bad_hosts) if history.bad_hosts else None


def _never_worked(history: History) -> Step | None:
    why = f"each of its {MOST_AT_FIRST} attempts or more was ended by its launcher, its scheduler or a host"
    return Stop(why) if history.never_worked else None


def _no_progress(history: History) -> Step | None:
    attempts = counted(history.in_vain, "attempt")
    why = f"{attempts} in a row made no new checkpoint (keep_going.without_progress)"
    return Stop(why) if history.in_vain >= history.most_in_vain else None


def _in_vain(history: History) -> Step | None:
    why = "its exit code forbids another attempt; fix the cause, then resume --force"
    return None if history.again else Stop(f"{_stands(history)}: {why}")


def _cancelled(history: History) -> Step | None:
    return Stop("is cancelled by its user", by_user=True) if history.cancelled else None


def _stopped(history: History) -> Step | None:
    """Stop if the attempt was asked to stop. A time limit that is near ends the job, but not the run."""
    continues = history.stopped in (None, Cause.TIME_LIMIT)
    return None if continues else Stop("was asked to stop")


def _followed(history: History) -> Step | None:
    return Resume(history.newest) if history.newest > history.attempt else None


def _same_nodes(history: History) -> Step | None:
    """Stop if the next attempt would use the same number of nodes."""
    why = f"after epoch {history.epochs:g}, by the newest checkpoint, no other number of nodes is wanted"
    return None if history.other_nodes else Stop(why)


def _not_its_turn(history: History) -> Step | None:
    return Wait("waits for another attempt") if history.at_work else None


def _no_time(history: History) -> Step | None:
    return None if history.time_left else Stop("has no time left in its held allocation")


def _not_yet(history: History, why: str) -> Wait:
    return Wait(f"{_stands(history)}: {why}")


def _stands(history: History) -> str:
    return f"is {history.state.value} ({history.reason or f'attempt {history.attempt}'})"


# fmt: off
RULES: dict[Policy, tuple[Callable[[History], Step | None], ...]] = {
    Policy.USER: (_held, _completed, _still_at_work, _in_vain, _another),
    Policy.FORCED: (_held, _completed, _another),
    Policy.JOB: (_stopped, _cancelled, _followed, _same_nodes, _another),
    Policy.KEEP_GOING: (
        _not_mine, _done, _cancelled, _not_begun, _no_hand_over, _stopped, _in_vain, _would_fail_again,
        _same_bad_hosts, _never_worked, _no_progress, _another,
    ),
    Policy.KEEPER: (_cancelled, _not_its_turn, _no_time, _this),
}
# fmt: on
