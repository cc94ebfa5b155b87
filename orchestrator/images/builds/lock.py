"""One builder at a time for an image, over all nodes that share the cache.

The kernel holds the lock and drops it with the process, so nothing goes stale; on NFS it is a byte-range lock of the
server. The file's text says who holds it, for messages only, and the file stays: removing it would let two in.
"""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from orchestrator.base import private
from orchestrator.base.errors import SiteError

LARGEST_BYTES = 4096
POLL_S = 0.2
NO_LOCKS = {errno.ENOSYS, errno.ENOLCK, errno.EOPNOTSUPP}


@contextmanager
def held(path: Path, waiting: Callable[[str], None] = lambda holder: None) -> Iterator[None]:
    """Hold the lock at `path`, after whoever holds it now; `waiting` is told once who that is.

    A file system without locks gives none: two may then build the same image, and the later rename wins.
    Raises SiteError when the file cannot be made.
    """
    with _opened(path) as file:
        told = False
        while not _taken(file, path):
            if not told:
                waiting(holder(path))
                told = True
            time.sleep(POLL_S)
        _sign(file)
        yield
        file.truncate(0)


@contextmanager
def held_if_free(path: Path) -> Iterator[bool]:
    """Hold the lock at `path` if nobody does; whether that is so."""
    with _opened(path) as file:
        yield _taken(file, path)


def holder(path: Path) -> str:
    """Who wrote its name into the lock last: 'host, process 123, since 12:34:56'; 'another build' if nobody did."""
    try:
        text = private.read_bytes(path, LARGEST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return "another build"
    return private.plain(text.splitlines()[0]) if text else "another build"


def _opened(path: Path) -> IO[str]:
    try:
        # NFS gives exclusive locks on files open for writing only.
        return open(private.open_regular(path, os.O_RDWR | os.O_CREAT), "r+", encoding="utf-8")
    except OSError as error:
        raise SiteError(f"{path}: the lock cannot be opened: {error.strerror}") from None


def _taken(file: IO[str], path: Path) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno in NO_LOCKS:
            return True
        if error.errno in (errno.EWOULDBLOCK, errno.EACCES):
            return False
        raise SiteError(f"{path}: cannot be locked: {error.strerror}") from None
    return True


def _sign(file: IO[str]) -> None:
    try:
        file.seek(0)
        file.truncate()
        file.write(f"{socket.gethostname()}, process {os.getpid()}, since {time.strftime('%H:%M:%S')}\n")
        file.flush()
    except OSError:
        pass  # a full disk must not keep a cached image from being found
