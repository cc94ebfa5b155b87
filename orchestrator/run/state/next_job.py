"""The state of a run that keeps going: between two attempts, its next job waits or begins."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.run.folder.events import (
    CancelRequested,
    Ended,
    Event,
    JobAdded,
    KeptGoing,
    NoMoreJobs,
    Submitted,
    Submitting,
)
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.state.in_vain import first_of_submission

WAITS = "the next waits in the queue"
BEGINS = "the next begins"


def may_begin_another(events: Sequence[Event], attempt: int) -> bool:
    """Whether another attempt may follow this one without its user, by the ledger."""
    intent, seen = last(events, Submitting, attempt), last(events, Ended, attempt)
    done = seen is not None and seen.state is State.COMPLETED
    return bool(intent and intent.jobs) and not done and last(events, KeptGoing, attempt) is None


def jobs_of(events: Sequence[Event], attempt: int) -> tuple[str, ...]:
    """The jobs that were submitted with an attempt, or with the one that it follows, in turn; an array is one job."""
    first = first_of_submission(events, attempt)
    submitted = last(events, Submitted, first)
    added = [event.job for event in events if isinstance(event, JobAdded) and event.attempt == first]
    return (*((submitted.job,) if submitted else ()), *added)


def lacks_jobs(events: Sequence[Event], attempt: int) -> bool:
    """Whether the submission of an attempt continues or was cut off: it has fewer jobs than were requested."""
    first = first_of_submission(events, attempt)
    intent = last(events, Submitting, first)
    in_turn = intent is not None and intent.in_turn and last(events, NoMoreJobs, first) is None
    return in_turn and intent is not None and len(jobs_of(events, first)) < intent.jobs


def later_jobs(events: Sequence[Event], attempt: int, job: str) -> tuple[str, ...]:
    """The jobs of the submission of an attempt that begin after `job`."""
    every = jobs_of(events, attempt)
    return every[every.index(job) + 1 :] if job in every else ()


def submitted_s(events: Sequence[Event], attempt: int) -> float | None:
    """When an attempt was submitted, or the first of those that follow one another without the user; None if unknown.

    It is a time of time.time().
    """
    intent = last(events, Submitting, attempt)
    first = first_of_submission(events, attempt) if intent and intent.jobs else attempt
    return next((event.time_s for event in events if event.attempt == first), None)


def status(events: Sequence[Event], attempt: int, own: Status, job: Status | None) -> Status:
    """The state of a run that may begin another attempt: `own` is that of this attempt, `job` that of its jobs."""
    if not own.state.over or last(events, CancelRequested, attempt):
        return own
    before = f"attempt {attempt} is {own.state.value}: {own.reason}"
    if job is None or job.state is State.UNKNOWN:
        why = job.reason if job else "the state of its jobs is not known"
        return Status(State.UNKNOWN, f"{before}; whether another attempt follows is not known: {why}")
    if job.state.over and lacks_jobs(events, attempt):
        return Status(State.UNKNOWN, f"{before}; whether another job was submitted is not known yet")
    if job.state.over:
        return own
    follows = WAITS if job.state is State.PENDING else BEGINS
    return Status(job.state, "; ".join(filter(None, (before, follows, job.reason))), never_starts=job.never_starts)


def at_the_end(events: Sequence[Event], attempt: int, own: Status) -> Status:
    """The state of an attempt that is over, with the reason why no further one followed."""
    closed = last(events, KeptGoing, attempt)
    if closed is None or not own.state.over or own.state is State.COMPLETED:
        return own
    ended = replace(own, reason=f"{own.reason}; no further attempt: {closed.why}")
    if closed.cancelled:
        return replace(ended, state=State.CANCELLED, cause=Cause.STOPPED)
    if closed.hosts:
        return replace(ended, state=Cause.BAD_HOST.state, cause=Cause.BAD_HOST, hosts=closed.hosts)
    return ended
