"""What /proc says of processes."""

from __future__ import annotations

import contextlib
from pathlib import Path


def children(pid: int) -> list[int]:
    """The processes that `pid` started and that have not ended."""
    found: list[int] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        with contextlib.suppress(OSError):  # that thread has ended
            found += map(int, path.read_text().split())
    return found


def child_of(pid: int) -> int:
    """The first process that `pid` started; `pid` itself where it has started none."""
    return next(iter(children(pid)), pid)


def state_of(pid: int) -> str:
    """The state of a process as the letter of proc(5): T is stopped, D waits for a disk; '' where it has ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
    except (OSError, IndexError):
        return ""
