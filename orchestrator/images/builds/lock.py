"""One builder at a time for an image, over all nodes that share the cache.

The text of the file names the holder, for messages only. The file stays: its removal would let two builders in.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from torusrun.orchestrator.base import lock, private

LARGEST_BYTES = 4096
LONGEST_S = 86400.0  # of a build; an older text is that of a killed one


@contextmanager
def held(path: Path, waiting: Callable[[str], None] = lambda holder: None) -> Iterator[None]:
    """Hold the lock at `path` once it is free. If another build holds it, `waiting` is called once with the holder.

    On a file system without locks nothing is held: two builders may build the same image, and the later rename wins.
    Raises SiteError if the file cannot be made.
    """
    with lock.held(path, waiting=lambda: waiting(holder(path))):
        _sign(path, f"{socket.gethostname()}, process {os.getpid()}, since {time.strftime('%H:%M:%S')}\n")
        try:
            yield
        finally:
            _sign(path, "")


def holder(path: Path) -> str:
    """The last holder of the lock: 'host, process 123, since 12:34:56'; 'another build' if it is unknown."""
    try:
        text = private.read_bytes(path, LARGEST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return "another build"
    return private.plain(text.splitlines()[0]) if text else "another build"


def is_signed(path: Path) -> bool:
    """Whether the text of the lock names a build that may be at work: all that is known on a file system without locks.

    True for a day after a build was killed.
    """
    with suppress(OSError):
        found = path.stat()
        return found.st_size > 0 and time.time() - found.st_mtime < LONGEST_S
    return False


def _sign(path: Path, name: str) -> None:
    opened = os.O_WRONLY | os.O_TRUNC
    with suppress(OSError), open(private.open_regular(path, opened), "w", encoding="utf-8") as file:
        file.write(name)  # a full disk must not prevent the use of a cached image
