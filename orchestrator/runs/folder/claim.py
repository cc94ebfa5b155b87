"""Which attempt of a run may train: at most one at a time, on any scheduler, and of two the newer.

Every rank holds its attempt's file `alive` with a shared lock (flock) for as long as a process of it lives; the kernel
drops the lock with the last of them. An attempt that begins writes its number into the run's file `.current`, and then
waits until nobody holds the files of earlier attempts. A rank looks at `.current` after it has taken its lock. So
whichever of two attempts is first, one of them sees the other.
"""

from __future__ import annotations

import errno
import fcntl
import os

from orchestrator.base.errors import SiteError
from orchestrator.base.private import open_regular, read_bytes
from orchestrator.runs.folder.events import LARGEST_ATTEMPT
from orchestrator.runs.folder.run_folder import Attempt, RunFolder

NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
LARGEST_BYTES = 100


class Superseded(SiteError):
    """A newer attempt of the run has begun: this one may not train any more."""


def take(run: RunFolder, number: int) -> None:
    """Make attempt `number` the run's current one. Raises Superseded where a newer one is, SiteError for a bad disk."""
    try:
        descriptor = open_regular(run.current, os.O_RDWR | os.O_CREAT)
        try:
            _flock(descriptor, fcntl.LOCK_EX)
            newest = _number(os.read(descriptor, LARGEST_BYTES))
            if newest > number:
                raise _superseded(number, newest)
            os.ftruncate(descriptor, os.pwrite(descriptor, f"{number}\n".encode(), 0))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise SiteError(f"{run.current}: cannot be written: {error.strerror}") from None


def check(run: RunFolder, number: int) -> None:
    """Raise Superseded where an attempt newer than `number` has begun."""
    try:
        newest = _number(read_bytes(run.current, LARGEST_BYTES))
    except OSError:
        return
    if newest > number:
        raise _superseded(number, newest)


def hold(attempt: Attempt) -> int:
    """Hold the attempt's lock together with its other ranks: a descriptor for the processes that are to keep it.

    On a file system without locks it holds nothing. Raises SiteError when the file cannot be opened.
    """
    try:
        descriptor = open_regular(attempt.alive, os.O_RDWR | os.O_CREAT)
        _flock(descriptor, fcntl.LOCK_SH)
    except OSError as error:
        raise SiteError(f"{attempt.alive}: cannot be locked: {error.strerror}") from None
    return descriptor


def held(attempt: Attempt) -> bool | None:
    """Whether a process of the attempt's ranks lives, on any node; None where no lock can tell."""
    try:
        descriptor = open_regular(attempt.alive, os.O_RDWR)
    except FileNotFoundError:
        return False
    except OSError:
        return None
    try:
        return None if not _flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB) else False
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)


def _flock(descriptor: int, how: int) -> bool:
    """Lock; False where the file system knows no locks. Raises BlockingIOError where another holds it."""
    try:
        fcntl.flock(descriptor, how)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return False
        raise
    return True


def _number(content: bytes) -> int:
    text = content.decode(errors="replace").strip()
    number = int(text) if text.isascii() and text.isdigit() else 0
    return number if number <= LARGEST_ATTEMPT else 0


def _superseded(number: int, newest: int) -> Superseded:
    return Superseded(f"attempt {newest} of this run has begun: attempt {number} may not train beside it")
