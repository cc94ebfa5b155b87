"""The state of an attempt, from its records and its scheduler's answer. Nothing here queries or reads files."""

from __future__ import annotations

from dataclasses import replace

from torusrun.orchestrator.base.states import Cause, State, Status
from torusrun.orchestrator.run.folder.events import CancelRequested, Ended, Event, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.records import End

# A scheduler knows these ends better than a job that only received a signal.
SCHEDULER_KNOWS = {State.TIMEOUT, State.PREEMPTED, State.NODE_FAIL, State.OOM, State.CANCELLED}

ENDS_OF_A_CANCELLED_JOB = {State.LOST, State.COMPLETED, State.FAILED, State.CANCELLED}

LACKED = (Cause.KILLED, Cause.OUT_OF_MEMORY)  # of an attempt that may have lacked memory

# A scheduler may take this long to show a job that it has accepted.
SHOWN_AFTER_S = 30.0

DONE = "the training recorded that it is done"
LOGS = "`torusrun logs` shows what it wrote"
RESUME = "`torusrun resume` continues from the newest checkpoint"
FORCE = "--force, if you know that its job is gone"
# Advice for an end that only the scheduler knew.
TO_DO = {
    State.FAILED: LOGS,
    State.TIMEOUT: f"{RESUME}, and --time gives it more time",
    State.PREEMPTED: RESUME,
    State.NODE_FAIL: RESUME,
    State.OOM: f"ask for more: `resume --mem SIZE`, or `request.memory` of the run; {RESUME}",
}


def resolve(
    events: list[Event], attempt: int, end: End | None, job: Status | None, now_s: float, *, done: bool = False
) -> Status:
    """The state of an attempt: by the job's own end record, else by an end in the ledger, else by the scheduler.

    `job` is the scheduler's current answer; None if it was not queried. `done` says that the training recorded that it
    is done: such an attempt is COMPLETED once it is over, however its job ended. Absence from the queue is never
    success, and neither is a job's exit code 0: a job that finds nothing to do ends well, too. For a job submitted just
    before `now_s` (of time.time()) absence means nothing.
    """
    status = _recorded(events, attempt, end)
    if not status and job and job.state.over:
        status = _over(events, attempt, end, job, now_s)
    elif not status and end and (job is None or (done and job.state is State.UNKNOWN)):  # no source can change it
        status = _as_asked(events, attempt, end.status)
    if status:
        return _completed(status) if done else status
    if job is None:
        return Status(State.UNKNOWN, _unsubmitted(events, attempt))
    if job.state is State.PENDING:  # the scheduler has requeued it
        return Status(job.state, _joined(job.reason, f"before: {end.reason}" if end else ""), job.hosts)
    ending = end.reason if end else DONE if done else ""
    return Status(job.state, _joined(ending and f"ending: {ending}", job.reason), job.hosts)


def _recorded(events: list[Event], attempt: int, end: End | None) -> Status | None:
    """The end that the job itself recorded, or that the ledger has."""
    if end and end.certain:
        return end.status
    seen = last(events, Ended, attempt)
    return seen.end.status if seen else None


def _completed(status: Status) -> Status:
    """The state after this end, if the training was done before it."""
    if status.state is State.COMPLETED or not status.state.over:
        return status
    return ended(How.DONE_BEFORE, rest=f"its job then ended with: {status.state.value}, {status.reason}").status


def _over(events: list[Event], attempt: int, end: End | None, job: Status, now_s: float) -> Status:
    """The end of an attempt whose job is over according to the scheduler."""
    if end and (job.state not in SCHEDULER_KNOWS or (job.state is State.OOM and _of_another(events, attempt, end))):
        return _as_asked(events, attempt, end.status)
    cause = Cause.of(job.state)
    if end:
        return Status(job.state, _joined(end.reason, job.reason, TO_DO.get(job.state, "")), cause=cause)
    if job.state in ENDS_OF_A_CANCELLED_JOB and last(events, CancelRequested, attempt):
        return _by_user(job.reason)
    if job.state in (State.LOST, State.COMPLETED):
        unseen = _not_shown_yet(events, attempt, now_s) if job.state is State.LOST else None
        return unseen or Status(State.LOST, _lost(events, attempt, job.reason))
    reason = job.reason or f"the scheduler says {job.state.value}"
    return Status(job.state, _joined(reason, TO_DO.get(job.state, "")), job.hosts, cause=cause)


def _of_another(events: list[Event], attempt: int, end: End) -> bool:
    """Whether an earlier attempt of the job lacked the memory, which killed one of its processes.

    The scheduler reports the lack for the whole job.
    """
    begun = last(events, Started, attempt)
    before = {e.attempt for e in events if isinstance(e, Started) and begun and e.job == begun.job} - {attempt}
    killed = any(isinstance(e, Ended) and e.attempt in before and e.cause in LACKED for e in events)
    return killed and end.evidence.get("signal") != "SIGKILL"


def _as_asked(events: list[Event], attempt: int, status: Status) -> Status:
    """A failure becomes CANCELLED if the user had asked for the end of the attempt.

    A scheduler may end a job before its supervisor handles signals: then no better record exists.
    """
    if status.state is not State.FAILED or not last(events, CancelRequested, attempt):
        return status
    return _by_user(status.reason)


def _by_user(reason: str) -> Status:
    cancelled = ended(How.CANCELLED).status
    return replace(cancelled, reason=_joined(cancelled.reason, reason))


def _lost(events: list[Event], attempt: int, reason: str) -> str:
    """The reason of a LOST attempt, with advice."""
    if not (last(events, Submitted, attempt) or last(events, Started, attempt)):
        return f"nothing shows that it was ever submitted: {reason}; `torusrun resume` submits it"
    known = f"{reason}, and the job left no record of its end"
    return f"its job is gone, and no record says how it ended: {known}; {LOGS}; {RESUME} ({FORCE})"


def _joined(*reasons: str) -> str:
    return "; ".join(filter(None, reasons))


def _not_shown_yet(events: list[Event], attempt: int, now_s: float) -> Status | None:
    """The state of an attempt that was just submitted and has not begun; None for any other."""
    submissions = [e for e in events if e.attempt == attempt and isinstance(e, (Submitting, Submitted))]
    if not submissions or last(events, Started, attempt):
        return None
    # Clocks of login nodes differ, so the submission may seem to be in the future.
    age_s = now_s - max(event.time_s for event in submissions)
    if abs(age_s) >= SHOWN_AFTER_S:
        return None
    scheduler = getattr(submissions[-1], "scheduler", "") or "its scheduler"
    return Status(State.UNKNOWN, f"submitted {max(age_s, 0):.0f} s ago; {scheduler} does not show it yet")


def _unsubmitted(events: list[Event], attempt: int) -> str:
    event = last(events, Submitting, attempt)
    name = event.name if event else "?"
    return f"the submission of attempt {attempt} was cut off; look for a job named {name!r} in the queue"
