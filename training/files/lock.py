"""Locks of files, among all processes and nodes that share the file system.

The kernel drops a lock with the last process that has the file open, so a lock never becomes stale. NFS gives a process
an exclusive lock only if it has the file open for writing.
"""

from __future__ import annotations

import errno
import fcntl
import math
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from torusrun.training.files.trusted import open_regular

TAKEN = (errno.EACCES, errno.EAGAIN)
NO_LOCKS = (errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP)
POLL_S = 0.05


def take(
    descriptor: int, *, shared: bool = False, wait_s: float = math.inf, waiting: Callable[[], None] = lambda: None
) -> bool | None:
    """Lock an open file until it is closed; False if another process still has the lock after `wait_s`.

    None on a file system without locks. `waiting` is called once, if another process has the lock at first. Raises
    OSError if the lock fails for another reason.
    """
    until_s = time.monotonic() + wait_s
    how = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
    if (mine := _try(descriptor, how)) is False:
        waiting()
    while mine is False and time.monotonic() < until_s:
        time.sleep(POLL_S)
        mine = _try(descriptor, how)
    return mine


@contextmanager
def held(
    path: Path, *, shared: bool = False, wait_s: float = math.inf, waiting: Callable[[], None] = lambda: None
) -> Iterator[bool | None]:
    """Lock the file `path` within the context, as `take` does; a missing file is created. Raises OSError."""
    descriptor = opened(path)
    try:
        yield take(descriptor, shared=shared, wait_s=wait_s, waiting=waiting)
    finally:
        os.close(descriptor)


def opened(path: Path) -> int:
    """A descriptor of the file `path` that can be locked; a missing file is created. Raises OSError."""
    return open_regular(path, os.O_RDWR | os.O_CREAT)


def release(descriptor: int) -> None:
    """Release a lock before the file is closed. Raises OSError."""
    fcntl.flock(descriptor, fcntl.LOCK_UN)


def _try(descriptor: int, how: int) -> bool | None:
    try:
        fcntl.flock(descriptor, how | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in (*TAKEN, *NO_LOCKS):
            raise
        return False if error.errno in TAKEN else None
    return True
