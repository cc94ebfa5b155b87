"""The one place where a scheduler's commands are run: polls, cancellations, and what their failures mean."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator import process
from orchestrator.errors import SiteError
from orchestrator.schedulers.seam import Scheduler
from orchestrator.states import State, Status


def poll(scheduler: Scheduler, job_ids: Sequence[str], timeout_s: float) -> dict[str, Status]:
    """The states of all these jobs, by one command, and a second one for those that have left the queue.

    A job that nobody knows any more is LOST with the reason; a scheduler that did not answer makes every job UNKNOWN,
    since a failed poll is not a failed job.
    """
    if not job_ids:
        return {}
    try:
        found = scheduler.parse_status(process.run(scheduler.status_command(job_ids), timeout_s=timeout_s))
    except SiteError as error:
        return {job_id: Status(State.UNKNOWN, str(error)) for job_id in job_ids}
    known = {job_id: found[job_id] for job_id in job_ids if job_id in found}
    over = [j for j in job_ids if j not in known or known[j].state.over]
    return {**known, **_ended(scheduler, over, known, timeout_s)}


def _ended(scheduler: Scheduler, job_ids: list[str], seen: dict[str, Status], timeout_s: float) -> dict[str, Status]:
    command = scheduler.accounting_command(job_ids) if job_ids else None
    records: dict[str, Status] = {}
    absent = "it has left the queue"
    if command:
        try:
            records = scheduler.parse_accounting(process.run(command, timeout_s=timeout_s))
            absent += ", and accounting has no record of it"
        except SiteError as error:
            absent += f", and accounting could not be asked ({error})"
    # Accounting lags behind the queue: what the queue saw of an end is not unseen by a record that still says RUNNING.
    records = {j: r for j, r in records.items() if r.state.over or j not in seen}
    return {j: records.get(j) or seen.get(j) or Status(State.LOST, absent) for j in job_ids}


def cancel(scheduler: Scheduler, job_id: str, timeout_s: float) -> None:
    """End a job. Raises SiteError when the scheduler could not be asked to."""
    process.run(scheduler.cancel_command(job_id), timeout_s=timeout_s).check(f"cancelling job {job_id}")
