"""Reads the states of this machine's jobs from the lines of /proc/PID/stat.

A job lives as long as any process of its session. By the start time (clock ticks since boot, field 22 of
/proc/PID/stat), a reused pid is not mistaken for the job.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State, Status

WAITING = "torusrun-waits"  # the name of a process that waits for other jobs before it begins


def job_id_of(stat: str) -> str:
    """The id of the job whose first process has this line of /proc/PID/stat."""
    process = _read(stat)
    if process is None:
        raise SiteError(f"/proc says {stat!r} of a process, which does not follow proc(5)")
    return f"{process.pid}.{process.start_ticks}"


def found(stats: str, job_ids: Sequence[str]) -> dict[str, Status]:
    """The states of the jobs that live, from the lines of /proc/PID/stat of all processes."""
    sessions: dict[str, list[_Process]] = {}
    for one in map(_read, stats.splitlines()):
        if one and one.state not in "ZX":
            sessions.setdefault(one.session, []).append(one)
    alive = {job_id: _status(job_id, sessions.get(job_id.partition(".")[0], [])) for job_id in job_ids}
    return {job_id: status for job_id, status in alive.items() if status}


def _status(job_id: str, processes: Sequence[_Process]) -> Status | None:
    """A job's state from the processes of its session, None if there are none of its own.

    The kernel gives no process the number of a living session. So if the session's first process lives, its start time
    shows whether the session is the job's. If not, the session is the job's, or that of a later job with the same pid.
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
