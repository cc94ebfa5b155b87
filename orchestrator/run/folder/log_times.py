"""The size of a log over time, in an index next to it: the logs themselves are not changed.

A line of the index is 'TIME BYTES': at TIME, in seconds of time.time() on the host of the rank, the log had this many
bytes. The process that starts the program reads the size of the log a few times a second. So a line of the log was
written in the interval before the first TIME whose BYTES include it.
"""

from __future__ import annotations

import contextlib
import math
import os
import stat
import sys
import time
from pathlib import Path

from torusrun.orchestrator.base.private import READABLE, open_kept, open_regular

WRITE_S = 1.0  # the interval of writes: a run of many ranks must not load a shared file system
BLOCK_BYTES = 65_536
LONGEST_BYTES = 100  # of a valid line


def index_of(log: Path) -> Path:
    """The path of a log's index."""
    return log.with_name(f"{log.name}.times")


class Recorder:
    """Records when the log of an open descriptor grows. It ignores a log that is not a regular file."""

    def __init__(self, descriptor: int, index: Path) -> None:
        self._descriptor, self._index = descriptor, index
        self._bytes = -1
        self._seen: list[str] = []
        self._anew = False  # whether the index must begin again, because its log did
        self._due_s = 0.0
        self.look()

    def look(self, *, last: bool = False) -> None:
        """Note the size, and write the notes if WRITE_S has passed or this look is the `last`."""
        with contextlib.suppress(OSError):  # a full disk loses times, and nothing else
            self._note(os.fstat(self._descriptor))
            if self._seen and (last or time.monotonic() >= self._due_s):
                self._due_s = time.monotonic() + WRITE_S
                self._write()

    def _note(self, status: os.stat_result) -> None:
        if status.st_size == self._bytes or not stat.S_ISREG(status.st_mode):
            return
        if status.st_size == 0 or status.st_size < self._bytes:
            self._anew = True
            self._seen.clear()
        self._bytes = status.st_size
        self._seen.append(f"{time.time():.3f} {status.st_size}\n")

    def _write(self) -> None:
        lines = "".join(self._seen).encode()
        self._seen.clear()
        flags = os.O_WRONLY | os.O_CREAT | (os.O_TRUNC if self._anew else os.O_APPEND)
        with open(open_regular(self._index, flags, READABLE), "wb", buffering=0) as file:
            file.write(lines)
        self._anew = False


class LogTimes:
    """The times of a log, read along with its lines. Sizes and times that decrease are skipped."""

    def __init__(self, log: Path) -> None:
        self._index = index_of(log)
        self._read_bytes = 0
        self._left = b""
        self._records: list[tuple[float, int]] = []  # read but not used yet, the next last
        self._newest: tuple[float, int] | None = None  # the newest used record

    def when(self, end: int, written_s: float) -> tuple[float | None, int]:
        """(the time by which the log had `end` bytes, its size at that time). `end` must not decrease between calls.

        Bytes that the index does not cover existed when the log was last written, at `written_s`. The time is None
        without an index.
        """
        while self._newest is None or self._newest[1] < end:
            while not self._records and self._read():
                pass
            if not self._records:
                break
            time_s, size = self._records.pop()
            before_s, before = self._newest or (time_s, -1)
            if size > before:
                self._newest = max(time_s, before_s), size
        if self._newest is None:
            return None, sys.maxsize
        if self._newest[1] >= end:
            return self._newest
        return max(self._newest[0], written_s), sys.maxsize

    def _read(self) -> bool:
        """Read the next block of the index; whether it had one."""
        try:
            with open(open_kept(self._index), "rb") as file:
                block = os.pread(file.fileno(), BLOCK_BYTES, self._read_bytes)
        except OSError:
            return False
        self._read_bytes += len(block)
        lines = (self._left + block).split(b"\n")
        self._left = lines.pop()[:LONGEST_BYTES]
        self._records = [record for line in reversed(lines) if (record := _record(line))]
        return bool(block)


def _record(line: bytes) -> tuple[float, int] | None:
    """A line of the index as (time_s, bytes); None if it is invalid."""
    time_s, _, size = line[:LONGEST_BYTES].partition(b" ")
    try:
        record = float(time_s), int(size)
    except ValueError:
        return None
    return record if math.isfinite(record[0]) and record[1] >= 0 else None
