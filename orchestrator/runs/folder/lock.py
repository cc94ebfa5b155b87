"""One client at a time adds an attempt to a run, over all nodes that share the file system.

The kernel holds the lock and drops it with the process, so nothing goes stale.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator.base import private
from orchestrator.base.errors import SiteError, UserError
from orchestrator.runs.folder.run_folder import RunFolder

POLL_S = 0.1
TAKEN = (errno.EACCES, errno.EAGAIN)


@contextmanager
def alone(run: RunFolder, wait_s: float = 0.0) -> Iterator[None]:
    """Hold the run's lock. Raises UserError when another client holds it, SiteError when it cannot be opened.

    The other one is given `wait_s` to end.
    """
    try:
        descriptor = private.open_regular(run.lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise SiteError(f"{run.lock}: cannot be opened: {error.strerror}") from None
    until_s = time.monotonic() + wait_s
    while _taken(descriptor):
        if time.monotonic() >= until_s:
            os.close(descriptor)
            raise UserError(f"another attempt of {run.run_id} is being submitted already")
        time.sleep(POLL_S)
    try:
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    """Whether another client has the lock; else this one has it from now on."""
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        # On a file system without locks, of two attempts with the same number the second cannot take its name.
        return error.errno in TAKEN
    return False
