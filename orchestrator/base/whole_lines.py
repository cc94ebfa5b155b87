"""Files that only grow by whole lines: how a line is added, and the lines at their ends."""

from __future__ import annotations

import contextlib
import errno
import os
from pathlib import Path

from torusrun.orchestrator.base.errors import explained
from torusrun.orchestrator.base.private import READABLE, open_kept, open_regular
from torusrun.training.files import lock

TAIL_BYTES = 65_536
BLOCK_BYTES = 1 << 20
LOCK_S = 10.0  # a write takes milliseconds, but any user who may read the file can lock it, too


def append(path: Path, line: str, mode: int = READABLE) -> None:
    """Append a line in one locked, synchronized write. Raises SiteError if it cannot be written."""
    with explained(f"{path}: cannot be written"):
        descriptor = open_regular(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, mode)
        with open(descriptor, "ab", buffering=0) as file:
            with contextlib.suppress(OSError):  # an append without the lock is still one write
                lock.take(descriptor, wait_s=LOCK_S)
            size = os.fstat(descriptor).st_size
            torn = size and os.pread(descriptor, 1, size - 1) != b"\n"  # a full disk cut the last line short
            text = b"\n" * bool(torn) + line.encode() + b"\n"
            if file.write(text) < len(text):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)


def last_lines(path: Path, largest_bytes: int) -> tuple[list[bytes], bytes]:
    """(The whole lines in the last `largest_bytes` of a regular file, the text after the last line break).

    A line that begins before these bytes is left out. Raises OSError if it is not a regular file.
    """
    with open(open_kept(path), "rb") as file:
        start = max(0, os.fstat(file.fileno()).st_size - largest_bytes)
        file.seek(start)
        content = file.read(largest_bytes)
    *lines, rest = content.split(b"\n")
    return (lines[1:] if start else lines), rest


def start_of_last(descriptor: int, lines: int, largest_bytes: int) -> int:
    """The offset of the last `lines` lines of an open file, or of those in its last `largest_bytes`.

    The file is read from its end, in blocks. A last line without a line break counts. Raises OSError.
    """
    size = os.fstat(descriptor).st_size
    first, at, block = max(size - largest_bytes, 0), size, b""
    left = lines + (size > 0 and os.pread(descriptor, 1, size - 1) == b"\n")
    while at > first:
        begin = max(at - BLOCK_BYTES, first)
        block = os.pread(descriptor, at - begin, begin)
        if left <= (breaks := block.count(b"\n")):
            end = len(block)
            for _ in range(left):
                end = block.rfind(b"\n", 0, end)
            return begin + end + 1 if left else size
        left, at = left - breaks, begin
    return at + (block.find(b"\n") + 1 if at else 0)


def tail(path: Path, largest_bytes: int = TAIL_BYTES) -> list[bytes]:
    """The last lines of a file, an unfinished line included; [] if it cannot be read."""
    try:
        lines, rest = last_lines(path, largest_bytes)
    except OSError:
        return []
    return [*lines, rest] if rest else lines
