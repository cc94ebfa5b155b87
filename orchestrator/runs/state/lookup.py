"""Finds the job of a submission whose answer was lost (its client was killed, say), by the job's name."""

from __future__ import annotations

import math
from pathlib import Path

from orchestrator import schedulers
from orchestrator.base.errors import SiteError, TorusrunError
from orchestrator.base.states import State, Status
from orchestrator.runs.folder import allocation, ledger
from orchestrator.runs.folder.events import Started, Submitted, Submitting
from orchestrator.runs.folder.ledger import last
from orchestrator.runs.folder.run_folder import RunFolder
from orchestrator.runs.state.outcome import SHOWN_AFTER_S
from orchestrator.runs.state.view import Record, read_record
from orchestrator.schedulers import answers
from orchestrator.schedulers.client import Client

CUT_OFF = "the submission of attempt {} was cut off"


def look_up(record: Record, now_s: float, until_s: float = math.inf) -> tuple[Record, Status | None]:
    """(the record, with the job's id if the scheduler has a job of that name; the state to show if it has none).

    It queries nothing while the submission may still be in progress: while its command may run, and while the
    scheduler may not show the job yet. It waits for the scheduler until `until_s` (of time.monotonic()).
    """
    intent = last(record.events, Submitting, record.attempt)
    if not intent or not record.plan or not record.mine or record.job or record.end or record.settled:
        return record, None
    young = now_s < intent.time_s + SHOWN_AFTER_S + record.plan.command_timeout_s
    if intent.held_in:
        return _in_held(record, RunFolder(Path(intent.held_in)), young=young)
    if young:
        return record, None
    name, cut_off = intent.name, CUT_OFF.format(record.attempt)
    try:
        client = Client(schedulers.get(record.scheduler), record.plan.command_timeout_s, until_s=until_s)
        found = answers.named(client, name, record.plan.poll_interval_s)
    except TorusrunError as error:
        return record, Status(State.UNKNOWN, f"{cut_off}: {error}")
    if found is None:
        return record, None
    known = {event.job for event in record.events if isinstance(event, (Submitted, Started))}
    if not (new := [job for job in found if job not in known]):
        reason = f"{cut_off}, and {record.scheduler} has no job named {name!r}"
        return record, Status(State.LOST, reason)
    return _note(record, new[-1])


def _in_held(record: Record, held: RunFolder, *, young: bool) -> tuple[Record, Status | None]:
    """Like `look_up`, for an attempt in a held allocation: its request waits there, or the keeper has noted its job."""
    if allocation.is_asked(allocation.of(held.folder), record.folder.attempt(record.attempt)):
        job = allocation.job(held)
        return _note(record, job) if job else (record, None)
    again = read_record(record.folder)
    if again.job or again.end or again.settled:
        return again, None
    if young:
        return record, Status(State.UNKNOWN, f"attempt {record.attempt} has not come to {held.run_id} yet")
    return record, Status(State.LOST, f"{CUT_OFF.format(record.attempt)}, and {held.run_id} has no request for it")


def _note(record: Record, job: str) -> tuple[Record, Status | None]:
    """Write the job into the ledger; the record with it."""
    try:
        ledger.append(record.folder.ledger, Submitted(record.attempt, job, record.scheduler, looked_up=True))
    except SiteError as error:
        reason = f"{CUT_OFF.format(record.attempt)}; it is job {job}, but {error}"
        return record, Status(State.UNKNOWN, reason)
    return read_record(record.folder), None
