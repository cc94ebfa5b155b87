"""One builder at a time for an image, over all nodes that share the cache.

The file's text says who holds the lock, for messages only, and the file stays: removing it would let two in.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from orchestrator.base import lock, private

LARGEST_BYTES = 4096


@contextmanager
def held(path: Path, waiting: Callable[[str], None] = lambda holder: None) -> Iterator[None]:
    """Hold the lock at `path`, after whoever holds it now; `waiting` is told once who that is.

    A file system without locks gives none: two may then build the same image, and the later rename wins.
    Raises SiteError when the file cannot be made.
    """
    with lock.held(path, waiting=lambda: waiting(holder(path))):
        _sign(path, f"{socket.gethostname()}, process {os.getpid()}, since {time.strftime('%H:%M:%S')}\n")
        yield
        _sign(path, "")


def holder(path: Path) -> str:
    """Who wrote its name into the lock last: 'host, process 123, since 12:34:56'; 'another build' if nobody did."""
    try:
        text = private.read_bytes(path, LARGEST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return "another build"
    return private.plain(text.splitlines()[0]) if text else "another build"


def _sign(path: Path, name: str) -> None:
    opened = os.O_WRONLY | os.O_TRUNC
    with suppress(OSError), open(private.open_regular(path, opened), "w", encoding="utf-8") as file:
        file.write(name)  # a full disk must not keep a cached image from being found
