"""The state of many runs with one query of each scheduler."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import replace

from orchestrator import schedulers
from orchestrator.errors import SiteError, TorusrunError
from orchestrator.runs import ledger
from orchestrator.runs.events import Ended
from orchestrator.runs.folder import RunFolder
from orchestrator.schedulers.client import Client
from orchestrator.states import State, Status
from orchestrator.watch.held import held
from orchestrator.watch.lookup import look_up
from orchestrator.watch.lost import explained
from orchestrator.watch.view import Record, View, read_record

SMALLEST_FREE_BYTES = 65_536
DEFAULT_TIMEOUT_S = 30.0


def views(
    runs: Sequence[RunFolder], now_s: float | None = None, keep: Callable[[Record], bool] | None = None
) -> list[View]:
    """Every run as it stands at `now_s` (of time.time(); default: now), or those whose records are to be kept.

    The schedulers are asked only about one's own runs that have not settled themselves.
    """
    now_s = time.time() if now_s is None else now_s
    return [record.view(status, now_s) for record, status in standing(runs, now_s, keep)]


def standing(
    runs: Sequence[RunFolder], now_s: float, keep: Callable[[Record], bool] | None = None
) -> list[tuple[Record, Status]]:
    """What the folder of every run says, and the state of its newest attempt, as of `now_s`."""
    records, jobs = [], {}
    for read in map(read_record, runs):
        if keep and not keep(read):
            continue
        record, answer = look_up(read, now_s)
        records.append(record)
        if answer:
            jobs[id(record)] = answer
    jobs.update(_ask([record for record in records if not record.settled and id(record) not in jobs]))
    return [_settle(record, jobs.get(id(record)), now_s) for record in records]


def _ask(records: list[Record]) -> dict[int, Status]:
    """What the schedulers say of each record's job: one poll per scheduler."""
    by_scheduler: dict[str, list[Record]] = defaultdict(list)
    said: dict[int, Status] = {}
    for record in records:
        if why := _unasked(record):
            said[id(record)] = Status(State.UNKNOWN, why)
        elif record.job:
            by_scheduler[record.scheduler].append(record)
    for name, group in by_scheduler.items():
        timeout_s = max(record.plan.command_timeout_s if record.plan else DEFAULT_TIMEOUT_S for record in group)
        jobs = [str(record.job) for record in group]
        try:
            found = Client(schedulers.get(name), timeout_s).poll(jobs)
        except TorusrunError as error:  # a scheduler that this version does not know
            found = {job: Status(State.UNKNOWN, str(error)) for job in jobs}
        said.update({id(record): found[str(record.job)] for record in group})
    return said


def _unasked(record: Record) -> str:
    """Why no scheduler is asked about a run, '' where one is."""
    if record.owner is None:
        return f"{record.folder.folder} is not there, or cannot be read"
    if not record.mine:
        return f"it belongs to user {record.owner}, and a scheduler is asked only about runs of one's own"
    if record.job and not record.scheduler:
        return f"nothing readable says which scheduler knows of its job {record.job}"
    if record.hopeless and not record.end:
        return "its folder does not say how it ended or what its job is; look for a job of its name in the queue"
    return ""


def _settle(record: Record, job: Status | None, now_s: float) -> tuple[Record, Status]:
    """The state of a run; an end that only the scheduler knew is written down, since schedulers forget."""
    if job and (job.state.over or job.state is State.UNKNOWN):  # it may have ended while the scheduler was asked
        record = record.now
        if record.followed:  # what was asked concerns its job, and not that of the attempt that follows
            return standing([record.folder], now_s)[0]
    status = _blamed_on_the_disk(record, explained(record, record.status(held(record, job), now_s)))
    if record.mine and status.state.over and not record.settled and status.state is not State.LOST:
        with contextlib.suppress(SiteError):  # a full disk: the scheduler is asked again next time
            ledger.append(record.folder.ledger, Ended(record.attempt, status.state, status.reason))
    return record, status


def _blamed_on_the_disk(record: Record, status: Status) -> Status:
    """An end that nobody could write down, beside the likely cause: a disk without room for the record."""
    if record.end or not record.mine or not status.state.over or record.settled:
        return status
    try:
        free_bytes = shutil.disk_usage(record.folder.folder).free
    except OSError:
        return status
    if free_bytes > SMALLEST_FREE_BYTES:
        return status
    return replace(status, reason=f"{status.reason}; the disk that holds the run is full: free space and resume")
