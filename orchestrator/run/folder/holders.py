"""The processes that hold the lock of an attempt (claim.py): those of this user on this host; their names elsewhere.

A process that is stopped holds it for ever: it handles no request to end.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Sequence

from torusrun.orchestrator.base import proc
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.attempt_folders import recorded
from torusrun.orchestrator.run.folder.run_folder import Attempt

LOOK_S = 0.1
KILLED_S = 5.0  # for the kernel to end a process, and to release its lock
FEW = 8  # ranks in a message


def wake(attempt: Attempt) -> None:
    """Let the stopped processes of this host continue, so that they handle what they were asked."""
    _send(attempt, signal.SIGCONT)


def end(attempt: Attempt, grace_s: float) -> bool:
    """End the attempt's processes on this host, by SIGTERM and after `grace_s` by SIGKILL; whether no other is left."""
    if grace_s and _send(attempt, signal.SIGTERM):
        wake(attempt)
        _released(attempt, grace_s)
    return _released(attempt, KILLED_S if _send(attempt, signal.SIGKILL) else 0.0)


def named(attempt: Attempt) -> str:
    """The processes that hold the lock, as 'process 4711 on node1 (stopped)'; the ranks elsewhere that left no end.

    Without either, the file that is locked.
    """
    here = socket.gethostname()
    words = [f"process {pid} on {here}{_how(pid)}" for pid in _here(attempt)]
    over = recorded(attempt)
    for rank in sorted(over["start"] - over["end"]):
        with contextlib.suppress(SiteError):
            start = read_object(attempt.rank_start(rank)) or {}
            if (host := start.get("host")) != here:
                words.append(f"rank {rank} on {host} (its wrapper is process {start.get('wrapper')})")
    more = ", ..." if len(words) > FEW else ""
    return ", ".join(words[:FEW]) + more or f"a process that holds the lock of {attempt.alive}"


def _here(attempt: Attempt) -> Sequence[int]:
    return [pid for pid in proc.with_shared_lock(attempt.alive) if pid != os.getpid()]


def _how(pid: int) -> str:
    return " (stopped)" if proc.state_of(pid) == "T" else ""


def _send(attempt: Attempt, number: signal.Signals) -> bool:
    """Send a signal to the processes of this host; whether there are any.

    A request to end reaches a rank's wrapper, which has the program stop in its own way.
    """
    pids = _here(attempt)
    for pid in pids:
        if number is signal.SIGTERM and proc.parent_of(pid) in pids:
            continue
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
    return bool(pids)


def _released(attempt: Attempt, wait_s: float) -> bool:
    """Whether nobody holds the lock within `wait_s`."""
    until_s = time.monotonic() + wait_s
    while (held := claim.held(attempt)) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    return not held
