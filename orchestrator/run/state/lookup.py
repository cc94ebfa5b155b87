"""Finds the job of a submission whose answer was lost (its client was killed, say), by the job's name."""

from __future__ import annotations

import contextlib
import math
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.run.folder import allocation, ledger
from torusrun.orchestrator.run.folder.events import JobAdded, NoMoreJobs, Started, Submitted, Submitting
from torusrun.orchestrator.run.folder.ledger import last
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.sweep_folder import SweepFolder
from torusrun.orchestrator.run.state.next_attempt import first_of_submission, jobs_of, lacks_jobs
from torusrun.orchestrator.run.state.outcome import SHOWN_AFTER_S
from torusrun.orchestrator.run.state.record import Record, read_record
from torusrun.orchestrator.schedulers import answers
from torusrun.orchestrator.schedulers.client import Client

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
    if record.folder.sweep and SweepFolder(record.folder.sweep).is_being_submitted:
        return record, Status(State.UNKNOWN, "its sweep is being submitted")
    name, cut_off = intent.name, CUT_OFF.format(record.attempt)
    try:
        scheduler = schedulers.get(record.scheduler)
        client = Client(scheduler, record.plan.command_timeout_s, until_s=until_s)
        named = answers.named(client, name, record.plan.poll_interval_s)
    except TorusrunError as error:
        return record, Status(State.UNKNOWN, f"{cut_off}: {error}")
    if named is None:
        return record, None
    known = {event.job for event in record.events if isinstance(event, (Submitted, Started))}
    if not (new := [job for job in named if job not in known]):
        return record, Status(State.LOST, f"{cut_off}, and {record.scheduler} has no job named {name!r}")
    return _note(record, new[-1] if intent.task is None else scheduler.task_id(new[-1], intent.task))


def look_up_added(record: Record, now_s: float, until_s: float = math.inf) -> Record:
    """The record, with a further job whose answer was lost if the scheduler has it, else with the end of the jobs."""
    if not record.plan or not record.mine or record.settled or not lacks_jobs(record.events, record.attempt):
        return record
    first, known = first_of_submission(record.events, record.attempt), jobs_of(record.events, record.attempt)
    intent, newest_s = last(record.events, Submitting, first), max(event.time_s for event in record.events)
    if not intent or not known or now_s < newest_s + SHOWN_AFTER_S + record.plan.command_timeout_s:
        return record
    with contextlib.suppress(TorusrunError):  # then the next look asks again
        client = Client(schedulers.get(record.scheduler), record.plan.command_timeout_s, until_s=until_s)
        named = answers.named(client, f"{intent.name}.{len(known)}", record.plan.poll_interval_s) or []
        new = [job for job in named if job not in known]
        cut_off = NoMoreJobs(first, CUT_OFF.format(first))
        ledger.append(record.folder.ledger, JobAdded(first, new[-1], looked_up=True) if new else cut_off)
        return read_record(record.folder)
    return record


def _in_held(record: Record, held: RunFolder, *, young: bool) -> tuple[Record, Status | None]:
    """As `look_up`, for an attempt in a held allocation: its request waits, or the keeper has noted its job."""
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
        return record, Status(State.UNKNOWN, f"{CUT_OFF.format(record.attempt)}; it is job {job}, but {error}")
    return read_record(record.folder), None
