"""Decides whether a run gets its next attempt, none, or none yet. A pure function of its history."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from torusrun.orchestrator.base.states import Cause, State

FORCE = "if you know that it is not running any more, resume it with --force"


@dataclass(frozen=True)
class More:
    """What an attempt lacked, "memory" (bytes of a node) or "time" (seconds), and the amount that the next asks for."""

    what: str
    amount: float

    def __str__(self) -> str:
        return f"{self.amount / 2**30:.1f} GiB a node" if self.what == "memory" else f"{self.amount:.0f} s"


@dataclass(frozen=True)
class Resume:
    """This attempt is the next; with `more`, in a job that asks for more than the job before."""

    attempt: int
    more: More | None = None


@dataclass(frozen=True)
class Stop:
    """No attempt follows. Messages print `why` after the run's name. `by_user` says that the user wants this.

    `hosts` are the bad hosts that are the cause, if any are. `later_job` says that a later job of the same submission
    works for the run, and must stay.
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
    """The known facts of a run. All concern `attempt`, except `newest`."""

    attempt: int
    state: State
    reason: str = ""  # of this state
    job: str | None = None
    begun: bool = True
    at_work: bool | None = False  # whether a process of its ranks lives; None if unknown
    again: bool = True  # False if the program forbids another attempt
    cancelled: bool = False  # by its user
    stopped: Cause | None = None  # why it was asked to stop
    held: bool = False  # whether the run holds an allocation
    more: More | None = None  # what the next attempt asks for more of (`more`)
    other_job: bool = False  # whether another job works for the run now
    hopeless: Stop | None = None  # why another attempt would be in vain (next_attempt.py)


class Policy(Enum):
    """Who asks for the decision."""

    USER = "the user asks for another attempt"
    FORCED = "the user does, and knows that nothing is at work any more"
    KEEP_GOING = "the job of a run that keeps going asks after an attempt, and before its first"


def decide(history: History, policy: Policy) -> Step:
    """What follows for a run with this history, by the first rule that applies."""
    if policy is Policy.KEEP_GOING:
        return _in_its_job(history)
    if history.held:
        return Stop("held an allocation, and no run: `torusrun hold` asks for another one")
    if history.state is State.COMPLETED:
        return Stop("is COMPLETED: there is nothing left to resume")
    refusal = _still_at_work(history) or _forbidden(history) if policy is Policy.USER else None
    return refusal or _another(history)


def _in_its_job(history: History) -> Step:
    """What follows for a run whose job asks. A time limit that is near ends the job, but not the run."""
    if history.other_job:
        return Stop("continues in another job")
    if history.state is State.COMPLETED:
        return Stop("is done")
    if history.cancelled:
        return Stop("is cancelled by its user", by_user=True)
    if not history.begun:
        return Resume(history.attempt)
    if history.stopped not in (None, Cause.TIME_LIMIT):
        return Stop("was asked to stop")
    in_vain = None if history.more else history.hopeless
    return _forbidden(history) or in_vain or _another(history)


def more(lacked: str, asked: float | None, factor: float | None, most: float) -> More | None:
    """What the next attempt asks for more of, if its run lets it grow by this factor; None at the most of it."""
    amount = min((asked or 0.0) * (factor or 1.0), most)
    return More(lacked, amount) if asked and amount > asked else None


def _another(history: History) -> Resume:
    return Resume(history.attempt + 1, history.more)


def _still_at_work(history: History) -> Wait | None:
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


def _forbidden(history: History) -> Stop | None:
    why = "its exit code forbids another attempt; fix the cause, then resume --force"
    return None if history.again else Stop(f"{_stands(history)}: {why}")


def _not_yet(history: History, why: str) -> Wait:
    return Wait(f"{_stands(history)}: {why}")


def _stands(history: History) -> str:
    return f"is {history.state.value} ({history.reason or f'attempt {history.attempt}'})"
