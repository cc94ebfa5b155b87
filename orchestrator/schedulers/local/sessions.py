"""The states of jobs of this machine, from the lines of /proc/PID/stat.

A job lives as long as any process of its session does. The start time (clock ticks since boot, field 22 of
/proc/PID/stat) keeps a reused pid from being taken for the job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from orchestrator.base.errors import SiteError
from orchestrator.base.states import State, Status

WAITING = "torusrun-waits"  # the name of a process that waits for other jobs before it begins


def job_id_of(stat: str) -> str:
    """The id of the job that began with the process that a line of /proc/PID/stat describes."""
    process = _read(stat)
    if process is None:
        raise SiteError(f"/proc says {stat!r} of a process, which does not follow proc(5)")
    return f"{process.pid}.{process.start_ticks}"


def found(stats: str, job_ids: Sequence[str]) -> dict[str, Status]:
    """Those of the jobs that live, from the lines of /proc/PID/stat of all processes."""
    sessions: dict[str, list[_Process]] = {}
    for one in map(_read, stats.splitlines()):
        if one and one.state not in "ZX":
            sessions.setdefault(one.session, []).append(one)
    told = {job_id: _status(job_id, sessions.get(job_id.partition(".")[0], [])) for job_id in job_ids}
    return {job_id: status for job_id, status in told.items() if status}


def _status(job_id: str, processes: Sequence[_Process]) -> Status | None:
    """A job's state from the processes of its session, None where it has none.

    The kernel gives no process the number of a session that lives. So if its first process is there, its start tells
    whose session it is, and if it is not, the session is still the job's, or that of a job which began as it did.
    """
    pid, _, start_ticks = job_id.partition(".")
    first = next((process for process in processes if process.pid == pid), None)
    if not processes or (first and first.start_ticks != start_ticks):
        return None
    if first is None:
        if min(int(process.start_ticks) for process in processes) < int(start_ticks):
            return None
        return Status(State.RUNNING, "its first process, the shell of the job, is gone; others of it are still at work")
    if first.name == WAITING:
        return Status(State.PENDING, "it waits for other jobs to end")
    return Status(State.RUNNING)


class _Process(NamedTuple):
    pid: str
    name: str
    state: str
    session: str
    start_ticks: str


# proc(5): pid (name) state ppid pgrp session, 15 others, start time. The name may hold anything, line breaks too.
STAT = re.compile(r"(\d+) \((.*)\) (\S) \S+ \S+ (\d+)(?: \S+){15} (\d+)(?= |$)")


def _read(line: str) -> _Process | None:
    match = STAT.match(line)
    return _Process(*match.groups()) if match else None
