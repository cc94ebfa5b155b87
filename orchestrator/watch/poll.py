"""How many runs stand, for one scheduler command in all."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

from orchestrator import schedulers
from orchestrator.runs import ledger
from orchestrator.runs.folder import RunFolder
from orchestrator.runs.records import End
from orchestrator.schedulers.client import poll
from orchestrator.spec.kinds import seconds
from orchestrator.states import State, Status
from orchestrator.watch.view import Record, View, read_record

SMALLEST_FREE_BYTES = 65_536


def views(runs: Sequence[RunFolder]) -> list[View]:
    """Every run as it stands now; the schedulers are asked only about runs that have not settled themselves."""
    records = [read_record(run) for run in runs]
    jobs = _ask([record for record in records if not record.settled])
    return [_settle(record, jobs.get(id(record))) for record in records]


def _ask(records: list[Record]) -> dict[int, Status]:
    """What the schedulers say of each record's job: one poll per scheduler."""
    by_scheduler: dict[str, list[Record]] = defaultdict(list)
    for record in records:
        if record.job:
            by_scheduler[record.plan["site"]["scheduler"]].append(record)
    said: dict[int, Status] = {}
    for name, group in by_scheduler.items():
        timeout_s = max(seconds(record.plan["site"]["command_timeout"]) for record in group)
        found = poll(schedulers.get(name), [str(record.job) for record in group], timeout_s)
        said.update({id(record): found[str(record.job)] for record in group})
    return said


def _settle(record: Record, job: Status | None) -> View:
    """The view of a run; an end that only the scheduler knew is written down, since schedulers forget."""
    if job and job.state.over and not record.end:  # the record may have appeared while the scheduler was asked
        record = replace(record, end=End.read(record.folder.attempt(record.attempt).end))
    status = _blamed_on_the_disk(record, record.status(job))
    if status.state.over and not record.settled and status.state is not State.LOST:
        ledger.append(record.folder.ledger, "ended", record.attempt, state=status.state.value, reason=status.reason)
    return record.view(status)


def _blamed_on_the_disk(record: Record, status: Status) -> Status:
    """An end that nobody could write down, beside the likely cause: a disk without room for the record."""
    if record.end or not status.state.over or shutil.disk_usage(record.folder.folder).free > SMALLEST_FREE_BYTES:
        return status
    return replace(status, reason=f"{status.reason}; the disk that holds the run is full: free space and resume")
