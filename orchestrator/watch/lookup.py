"""A submission whose answer was lost, as when its client was killed: its job is looked up by its name."""

from __future__ import annotations

from orchestrator import schedulers
from orchestrator.errors import SiteError, TorusrunError
from orchestrator.runs import ledger
from orchestrator.runs.events import Started, Submitted, Submitting
from orchestrator.runs.ledger import last
from orchestrator.runs.outcome import SHOWN_AFTER_S
from orchestrator.schedulers import answers
from orchestrator.schedulers.client import Client
from orchestrator.states import State, Status
from orchestrator.watch.view import Record, read_record


def look_up(record: Record, now_s: float) -> tuple[Record, Status | None]:
    """The record, with the job's id if the scheduler knows one of that name, or else what is to be said of it.

    Nothing is asked while the submission may still be under way: for the time that its command may take, and that the
    scheduler may take to show a job.
    """
    intent = last(record.events, Submitting, record.attempt)
    if not intent or not record.plan or not record.mine or record.job or record.end or record.settled:
        return record, None
    wait_s = SHOWN_AFTER_S + record.plan.command_timeout_s
    if now_s < intent.time_s + wait_s:
        return record, None
    name, cut_off = intent.name, f"the submission of attempt {record.attempt} was cut off"
    try:
        client = Client(schedulers.get(record.scheduler), record.plan.command_timeout_s)
        found = answers.named(client, name, record.plan.poll_interval_s)
    except TorusrunError as error:
        return record, Status(State.UNKNOWN, f"{cut_off}: {error}")
    if found is None:
        return record, None
    known = {event.job for event in record.events if isinstance(event, (Submitted, Started))}
    if not (new := [job for job in found if job not in known]):
        reason = f"{cut_off}, and {record.scheduler} has no job named {name!r}"
        return record, Status(State.LOST, reason)
    try:
        ledger.append(record.folder.ledger, Submitted(record.attempt, new[-1], record.scheduler, looked_up=True))
    except SiteError as error:
        return record, Status(State.UNKNOWN, f"{cut_off}; it is job {new[-1]}, but {error}")
    return read_record(record.folder), None
