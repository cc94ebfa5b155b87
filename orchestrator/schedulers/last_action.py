"""Records when this user last submitted or cancelled a job, or needed the current state; older answers do not count."""

from __future__ import annotations

import contextlib
import os
import time
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.keys.paths import state_folder
from torusrun.orchestrator.schedulers.interface import Scheduler


def place(scheduler: Scheduler) -> Path:
    """The file of a cluster's answers. Each login node has its own, since clusters may share a home folder."""
    import hashlib  # it loads OpenSSL, which `status` needs only for a query

    parts = [os.uname().nodename, *(os.environ.get(name, "") for name in scheduler.variables.cluster)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    name = "".join(char if char.isalnum() else "-" for char in scheduler.name)
    return state_folder() / "answers" / f"{name}-{key}.json"


APPENDING = os.O_WRONLY | os.O_CREAT | os.O_APPEND
MOST_BYTES = 1_000_000  # of the ids of new jobs, before the first query about them


def note(scheduler: Scheduler, job: str = "") -> None:
    """Make the scheduler's earlier answers too old. If this cannot be recorded, they become too old with time.

    If the scheduler reports only the jobs that a query names, the next query also names the new `job`.
    """
    if scheduler.traits.one_machine:
        return
    with contextlib.suppress(TorusrunError, OSError):
        path = _path(place(scheduler))
        private.make(path.parent)
        private.write_bytes(path, repr(time.time()).encode())
        if job and not scheduler.traits.reports_all_jobs:
            line = f"{job}\n".encode()
            with open(private.open_regular(_new(place(scheduler)), APPENDING), "ab") as new:
                if new.tell() + len(line) <= MOST_BYTES:
                    new.write(line)


def last_s(place: Path) -> float:
    """The time of the last action (of time.time()), 0 if unknown."""
    try:
        return float(private.read_bytes(_path(place), 100))
    except (OSError, ValueError):
        return 0.0


def taken_new(place: Path) -> list[str]:
    """The jobs that were submitted since the last call."""
    path = _new(place)
    try:
        content = private.read_bytes(path, MOST_BYTES)
        path.unlink()
    except OSError:
        return []
    return content.decode(errors="replace").split()


def _new(place: Path) -> Path:
    return place.with_suffix(".new")


def _path(place: Path) -> Path:
    return place.with_suffix(".acted")
