"""The locks of a run: one process adds an attempt at a time, and at most one attempt trains, of two the newer.

Every rank holds a shared lock (flock) on its attempt's file `alive` as long as a process of the rank lives. The kernel
releases the lock with the last of these processes. An attempt that begins writes its number into the run's file
`.current`. Then it waits until the files of earlier attempts are unlocked. A rank reads `.current` after it has taken
its lock. So of two attempts, in either order, at least one sees the other.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from pathlib import Path

from torusrun.orchestrator.base import lock, proc
from torusrun.orchestrator.base.errors import SiteError, UserError, explained
from torusrun.orchestrator.base.json_files import read_object
from torusrun.orchestrator.base.private import open_regular, read_bytes
from torusrun.orchestrator.run.folder.events import LARGEST_ATTEMPT
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.training.files import lock as file_lock

LARGEST_BYTES = 100
WAIT_S = 5.0  # for a process that records an end, which takes a moment
LOOK_S = 0.1
KILLED_S = 5.0  # for the kernel to end a process, and to release its lock
FEW = 8  # ranks in a message
_mine: ContextVar[frozenset[Path]] = ContextVar("the locks of runs that the caller holds", default=frozenset())


@contextlib.contextmanager
def alone(run: RunFolder, wait_s: float = WAIT_S) -> Iterator[None]:
    """Hold the run's lock, on all nodes that share the file system; a caller that holds it may do so again.

    Raises UserError if another process holds it after `wait_s`, SiteError if it cannot be opened. On a file system
    without locks, the rename of a second attempt with the same number fails.
    """
    if run.lock in _mine.get():
        yield
        return
    with lock.held(run.lock, wait_s=wait_s) as mine:
        if mine is False:
            raise UserError(
                f"another process adds an attempt of {run.run_id} or records its end; try again in a moment"
            )
        before = _mine.set(_mine.get() | {run.lock})
        try:
            yield
        finally:
            _mine.reset(before)


class Superseded(SiteError):
    """A newer attempt of the run has begun: this attempt must not train any more."""


def take(run: RunFolder, number: int) -> None:
    """Make attempt `number` the current one. Raises Superseded if a newer attempt is, SiteError for a bad disk."""
    with explained(f"{run.current}: cannot be written"):
        descriptor = file_lock.opened(run.current)
        try:
            file_lock.take(descriptor)
            _compare(number, os.read(descriptor, LARGEST_BYTES))
            os.ftruncate(descriptor, os.pwrite(descriptor, f"{number}\n".encode(), 0))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)


def check(run: RunFolder, number: int) -> None:
    """Raise Superseded if an attempt newer than `number` has begun."""
    with contextlib.suppress(OSError):
        _compare(number, read_bytes(run.current, LARGEST_BYTES))


def hold(attempt: Attempt) -> int:
    """Take the attempt's lock, shared with its other ranks; the descriptor, for the processes that must keep it.

    On a file system without locks it locks nothing. Raises SiteError if the file cannot be opened.
    """
    with explained(f"{attempt.alive}: cannot be locked"):
        descriptor = file_lock.opened(attempt.alive)
        file_lock.take(descriptor, shared=True)
    return descriptor


def held(attempt: Attempt) -> bool | None:
    """Whether a process of the attempt's ranks lives, on any node; None if unknown (no locks, or no access)."""
    try:
        descriptor = open_regular(attempt.alive, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        free = file_lock.take(descriptor, wait_s=0.0)
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if free is None else not free


def _compare(number: int, content: bytes) -> None:
    """Raise Superseded if this content of `.current` names an attempt newer than `number`."""
    text = content.decode(errors="replace").strip()
    newest = int(text) if text.isascii() and text.isdigit() else 0
    if number < newest <= LARGEST_ATTEMPT:
        raise Superseded(f"attempt {newest} of this run has begun: attempt {number} must not train at the same time")


def wake(attempt: Attempt) -> None:
    """Let the stopped processes of this host continue, so that they handle what they were asked."""
    _send(attempt, signal.SIGCONT)


def end_holders(attempt: Attempt, grace_s: float) -> bool:
    """End the attempt's processes on this host, by SIGTERM, after `grace_s` by SIGKILL; whether no holder is left."""
    if grace_s and _send(attempt, signal.SIGTERM):
        wake(attempt)
        _released(attempt, grace_s)
    return _released(attempt, KILLED_S if _send(attempt, signal.SIGKILL) else 0.0)


def holders(attempt: Attempt) -> str:
    """The processes that hold the lock: this user's here, as 'process 4711 on node1 (stopped)', and ranks elsewhere.

    A stopped process holds the lock for ever: it handles no request to end. If both are unknown, the locked file.
    """
    from torusrun.orchestrator.run.folder.attempt_folders import recorded  # imported late: ranks do not need it

    here = socket.gethostname()
    words = [f"process {pid} on {here}{' (stopped)' if proc.state_of(pid) == 'T' else ''}" for pid in _here(attempt)]
    ranks = recorded(attempt)
    for rank in sorted(ranks["start"] - ranks["end"]):
        with contextlib.suppress(SiteError):
            start = read_object(attempt.rank_start(rank)) or {}
            if (host := start.get("host")) != here:
                words.append(f"rank {rank} on {host} (its wrapper is process {start.get('wrapper')})")
    more = ", ..." if len(words) > FEW else ""
    return ", ".join(words[:FEW]) + more or f"a process that holds the lock of {attempt.alive}"


def _here(attempt: Attempt) -> Sequence[int]:
    return [pid for pid in proc.with_shared_lock(attempt.alive) if pid != os.getpid()]


def _send(attempt: Attempt, number: signal.Signals) -> bool:
    """Send a signal to the attempt's processes on this host; whether it has any here.

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
    while (locked := held(attempt)) and time.monotonic() < until_s:
        time.sleep(LOOK_S)
    return not locked
