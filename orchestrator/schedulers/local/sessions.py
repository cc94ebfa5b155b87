"""The jobs of this machine: starts them, and reads their states from the lines of /proc/PID/stat.

`orchestrator.schedulers.local.sessions SCRIPT OUT ERR TOKEN [JOB_ID...]` is the submit command: it starts the script in
its own session, once these jobs have ended, and prints its job id. The script writes into the files OUT and ERR. TOKEN
is an argument of the script, by which `--find TOKEN` finds its process. The umask is the caller's. A script that waits
is at first `... --wait SCRIPT TOKEN JOB_ID...`, which keeps its pid and so its job id. `--end JOB_ID` asks a job to
end. Nothing here needs a program that a minimal system lacks, as pgrep and kill.

A job lives as long as any process of its session. By the start time (clock ticks since boot, field 22 of
/proc/PID/stat), a reused pid is not mistaken for the job.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import safe
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State, Status

WAIT, FIND, END = "--wait", "--find", "--end"
SCRIPT = re.compile(r"/jobs?[.]sh$")
WAITING = "torusrun-waits"  # the name of a process that waits for other jobs before it begins
POLL_S = 0.2
NAMED_S = 10.0  # at most, for a new job to show that it waits
NAMED_POLL_S = 0.01
PR_SET_NAME = 15  # <linux/prctl.h>


def main() -> None:
    if sys.argv[1] == WAIT:
        _wait(*sys.argv[2:])
    if sys.argv[1] == FIND:
        return print(*working(sys.argv[2]))
    if sys.argv[1] == END:
        return _end(sys.argv[2])
    (script, output, errors), token, awaited = map(Path, sys.argv[1:4]), sys.argv[4], sys.argv[5:]
    waits = process.module(sys.executable, "torusrun.orchestrator.schedulers.local.sessions", WAIT, script, token)
    with private.appended(output) as out, private.appended(errors) as err:
        job = subprocess.Popen(
            [*waits, *awaited] if awaited else ["bash", str(script), token],
            stdin=subprocess.DEVNULL, stdout=out, stderr=err, start_new_session=True, env=safe(os.environ),
        )  # fmt: skip
    stat = Path(f"/proc/{job.pid}/stat").read_text()
    until_s = time.monotonic() + NAMED_S
    while awaited and not _waits_or_runs(job) and time.monotonic() < until_s:
        time.sleep(NAMED_POLL_S)
    print(job_id_of(stat))


def _waits_or_runs(job: subprocess.Popen[bytes]) -> bool:
    """Whether a job that waits for others can be told from a job that runs: by its name, which it changes first."""
    name = Path(f"/proc/{job.pid}/comm").read_text().strip()
    return name in (WAITING, "bash") or job.poll() is not None


def _end(job_id: str) -> None:
    """Ask the first process of a job, and all of its group, to end. Exits with 1 and the reason if that fails."""
    try:
        os.killpg(int(job_id.partition(".")[0]), signal.SIGTERM)
    except OSError as error:
        sys.exit(f"job {job_id} cannot be ended: {error.strerror}")


def working(token: str) -> list[int]:
    """The processes of this user that run the script of the job with this token, or wait to do so."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):  # a process that has just ended
            words = path.read_text(errors="replace").split("\0")
            runs = any(SCRIPT.search(script) and given == token for script, given in pairwise(words))
            if runs and path.stat().st_uid == os.geteuid():
                pids.append(int(path.parent.name))
    return pids


def _wait(script: str, token: str, *awaited: str) -> None:
    """Wait until other jobs have ended, then become the script: this machine's form of a dependency."""
    import ctypes

    ctypes.CDLL(None).prctl(PR_SET_NAME, WAITING.encode())
    while any(map(_lives, awaited)):
        time.sleep(POLL_S)
    os.execvp("bash", ["bash", script, token])


def _lives(job_id: str) -> bool:
    """Whether a process of the job lives. While its first process does, no other has to be looked at."""
    with contextlib.suppress(OSError):
        if states([_stat(Path(f"/proc/{job_id.partition('.')[0]}/stat"))], [job_id]):
            return True
    lines = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # a process that has just ended
            lines.append(_stat(path))
    return bool(states(lines, [job_id]))


def _stat(path: Path) -> str:
    return path.read_text(errors="replace").replace("\n", " ")  # the name of a process may hold line breaks


def job_id_of(stat: str) -> str:
    """The id of the job whose first process has this line of /proc/PID/stat."""
    first = _read(stat)
    if first is None:
        raise SiteError(f"/proc says {stat!r} of a process, which does not follow proc(5)")
    return f"{first.pid}.{first.start_ticks}"


def states(stats: Sequence[str], job_ids: Sequence[str]) -> dict[str, Status]:
    """The states of the jobs that live, from the lines of /proc/PID/stat of all processes."""
    sessions: dict[str, list[_Process]] = {}
    for each in map(_read, stats):
        if each and each.state not in "ZX":
            sessions.setdefault(each.session, []).append(each)
    alive = {job_id: _status(job_id, sessions.get(job_id.partition(".")[0], [])) for job_id in job_ids}
    return {job_id: status for job_id, status in alive.items() if status}


def _status(job_id: str, processes: Sequence[_Process]) -> Status | None:
    """A job's state from the processes of its session, None if there are none of its own.

    The kernel gives no process the number of a living session. So if the session's first process lives, its start time
    shows whether the session is the job's. If not, the session is the job's, or that of a later job with the same pid.
    """
    pid, _, start_ticks = job_id.partition(".")
    first = next((each for each in processes if each.pid == pid), None)
    if not processes or (first and first.start_ticks != start_ticks):
        return None
    if first is None:
        if min(int(each.start_ticks) for each in processes) < int(start_ticks):
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


if __name__ == "__main__":
    main()
