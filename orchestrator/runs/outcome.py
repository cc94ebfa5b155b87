"""What state an attempt is in, from everything that was said about it. Nothing here asks anybody."""

from __future__ import annotations

from orchestrator.runs.ledger import Event, last
from orchestrator.runs.records import End
from orchestrator.states import State, Status

# What a scheduler knows better than a job that only felt a signal.
SCHEDULER_KNOWS = {State.TIMEOUT, State.PREEMPTED, State.NODE_FAIL, State.OOM, State.CANCELLED}


# A scheduler may take this long to show a job that it has accepted.
SHOWN_AFTER_S = 30.0


def resolve(events: list[Event], attempt: int, end: End | None, job: Status | None, now_s: float) -> Status:
    """The state of an attempt: the job's own end record first, what was seen before second, the scheduler third.

    `job` is what the scheduler says now, None if it was not asked. Absence from the queue is never success, and of a
    job submitted just before `now_s` (as of time.time()) it says nothing at all.
    """
    if end and end.certain:
        return Status(end.state, end.reason)
    if seen := last(events, "ended", attempt):
        return Status(State(seen.details["state"]), seen.details["reason"])
    if job is None and end:  # nobody knows of a job, so nobody knows better
        return _status(end)
    if job is None:
        return Status(State.UNKNOWN, _unsubmitted(events, attempt))
    if not job.state.over:
        return Status(job.state, f"ending: {end.reason}", job.hosts) if end else job
    if end:
        return Status(job.state, f"{end.reason}; {job.reason}") if job.state in SCHEDULER_KNOWS else _status(end)
    if job.state in (State.LOST, State.FAILED) and last(events, "cancel_requested", attempt):
        return Status(State.CANCELLED, f"cancelled by its user; {job.reason}")
    if job.state is State.LOST and (young := _not_shown_yet(events, attempt, now_s)):
        return young
    if job.state is State.LOST:
        return Status(State.LOST, f"{job.reason}, and the job left no record of its end")
    return Status(job.state, job.reason or f"the scheduler says {job.state.value}", job.hosts)


def _status(end: End) -> Status:
    return Status(end.state, end.reason)


def _not_shown_yet(events: list[Event], attempt: int, now_s: float) -> Status | None:
    """The state of an attempt that was submitted a moment ago and has not begun; None for any other."""
    submissions = [e for e in events if e.attempt == attempt and e.kind in ("submitting", "submitted")]
    if not submissions or last(events, "started", attempt):
        return None
    # Clocks of login nodes differ, so the submission may seem to lie ahead.
    age_s = now_s - max(event.time_s for event in submissions)
    if abs(age_s) >= SHOWN_AFTER_S:
        return None
    scheduler = submissions[-1].details.get("scheduler", "its scheduler")
    return Status(State.UNKNOWN, f"submitted {max(age_s, 0):.0f} s ago; {scheduler} does not show it yet")


def _unsubmitted(events: list[Event], attempt: int) -> str:
    event = last(events, "submitting", attempt)
    name = event.details["name"] if event else "?"
    return f"the submission of attempt {attempt} was cut off; look for a job named {name!r} in the queue"
