"""Which attempt of a run may train: at most one at a time, on any scheduler, and of two the newer.

Every rank holds a shared lock (flock) on its attempt's file `alive` as long as a process of the rank lives. The kernel
releases the lock with the last of these processes. An attempt that begins writes its number into the run's file
`.current`. Then it waits until the files of earlier attempts are unlocked. A rank reads `.current` after it has taken
its lock. So of two attempts, in either order, at least one sees the other.
"""

from __future__ import annotations

import contextlib
import os

from torusrun.orchestrator.base.errors import SiteError, explained
from torusrun.orchestrator.base.private import open_regular, read_bytes
from torusrun.orchestrator.run.folder.events import LARGEST_ATTEMPT
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.training.files import lock

LARGEST_BYTES = 100


class Superseded(SiteError):
    """A newer attempt of the run has begun: this one must not train any more."""


def take(run: RunFolder, number: int) -> None:
    """Make attempt `number` the run's current one. Raises Superseded if a newer one is, SiteError for a bad disk."""
    with explained(f"{run.current}: cannot be written"):
        descriptor = lock.opened(run.current)
        try:
            lock.take(descriptor)
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
        descriptor = lock.opened(attempt.alive)
        lock.take(descriptor, shared=True)
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
        free = lock.take(descriptor, wait_s=0.0)
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
