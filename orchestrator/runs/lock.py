"""One client at a time adds an attempt to a run, over all nodes that share the file system.

The kernel holds the lock and drops it with the process, so nothing goes stale.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from orchestrator import private
from orchestrator.errors import SiteError, UserError
from orchestrator.runs.folder import RunFolder

TAKEN = (errno.EACCES, errno.EAGAIN)


@contextmanager
def alone(run: RunFolder) -> Iterator[None]:
    """Hold the run's lock. Raises UserError when another client holds it, SiteError when it cannot be opened."""
    try:
        descriptor = private.open_regular(run.lock, os.O_RDWR | os.O_CREAT)
    except OSError as error:
        raise SiteError(f"{run.lock}: cannot be opened: {error.strerror}") from None
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in TAKEN:
            os.close(descriptor)
            raise UserError(f"another attempt of {run.run_id} is being submitted already") from None
        # A file system without locks: of two attempts with the same number the second cannot take its name.
    try:
        yield
    finally:
        os.close(descriptor)
