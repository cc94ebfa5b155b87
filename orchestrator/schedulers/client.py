"""The one place where a scheduler's commands are run: polls, cancellations, and what their failures mean."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import process
from orchestrator.errors import SiteError
from orchestrator.schedulers.seam import Scheduler
from orchestrator.states import State, Status


def poll(scheduler: Scheduler, job_ids: Sequence[str], timeout_s: float) -> dict[str, Status]:
    """The states of all these jobs, by one command, and a second one for those that it did not tell of.

    A job that nobody knows any more is LOST with the reason. A scheduler that did not answer makes jobs UNKNOWN, since
    a failed poll is not a failed job.
    """
    if not job_ids:
        return {}
    try:
        found = scheduler.parse_status(process.run(scheduler.status_command(job_ids), timeout_s=timeout_s))
    except SiteError as error:
        return {job_id: Status(State.UNKNOWN, str(error)) for job_id in job_ids}
    absent = [job_id for job_id in job_ids if job_id not in found]
    found.update(_recorded(scheduler, absent, timeout_s))
    return {job_id: found[job_id] for job_id in job_ids}


def _recorded(scheduler: Scheduler, job_ids: list[str], timeout_s: float) -> dict[str, Status]:
    """What the scheduler's records say of jobs that its queue knows nothing of."""
    command = scheduler.accounting_command(job_ids) if job_ids else None
    if command is None:
        return {job_id: Status(State.LOST, "it has left the queue") for job_id in job_ids}
    try:
        records = scheduler.parse_accounting(process.run(command, timeout_s=timeout_s))
    except SiteError as error:
        reason = f"it has left the queue, and accounting could not be asked ({error})"
        return {job_id: Status(State.UNKNOWN, reason) for job_id in job_ids}
    nowhere = Status(State.LOST, "it has left the queue, and accounting has no record of it")
    return {job_id: records.get(job_id, nowhere) for job_id in job_ids}


def named(scheduler: Scheduler, name: str, timeout_s: float) -> list[str] | None:
    """The jobs of this user that bear a name; None where the scheduler has no answer to that.

    Raises SiteError when it could not be asked.
    """
    command = scheduler.named_command(name)
    return None if command is None else scheduler.parse_named(process.run(command, timeout_s=timeout_s), name)


def cancel(scheduler: Scheduler, job_id: str, timeout_s: float) -> None:
    """End a job. Raises SiteError when the scheduler could not be asked to."""
    process.run(scheduler.cancel_command(job_id), timeout_s=timeout_s).check(f"cancelling job {job_id}")
