"""One file of output, read as it grows, with the time of each line if an index has it (run/folder/log_times.py)."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from torusrun.orchestrator.base import whole_lines
from torusrun.orchestrator.base.private import open_kept
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.whole_lines import TAIL_BYTES
from torusrun.orchestrator.run.folder.copying import written
from torusrun.orchestrator.run.folder.log_times import LogTimes

BLOCK_BYTES = whole_lines.BLOCK_BYTES


class LogLine(NamedTuple):
    """A line of output: the latest time of its writing (as of time.time(), None if unknown), origin, and text."""

    time_s: float | None
    origin: str
    text: str

    def __str__(self) -> str:
        return f"{self.origin}{self.text}"


@dataclass
class FollowedFile:
    """One file and the position of reading. `left` is an unfinished line at the end.

    It is read in blocks of `block_bytes` and is open only while one is read, because thousands may be read together.
    """

    origin: str
    path: Path
    block_bytes: int = BLOCK_BYTES
    read_bytes: int = 0
    left: bytes = b""
    inode: int = 0
    refused: str = ""
    times: LogTimes = field(init=False)

    def __post_init__(self) -> None:
        self.times = LogTimes(self.path)

    def begin(self, inode: int, at_bytes: int) -> None:
        """Read the file with this inode from `at_bytes` on, and any other file from its beginning."""
        self.inode, self.read_bytes = inode, at_bytes

    def begin_with_last(self, lines: int, largest_bytes: int) -> bool:
        """Read only the last `lines` lines, of at most `largest_bytes`; False if there are no earlier ones."""
        with contextlib.suppress(OSError), open(open_kept(self.path), "rb", buffering=0) as file:
            at = whole_lines.start_of_last(file.fileno(), lines, largest_bytes)
            self.begin(os.fstat(file.fileno()).st_ino, at)
        return self.read_bytes > 0

    def new(self, *, whole: bool) -> Iterator[LogLine]:
        """The lines that were added since the last call; without `whole` also an unfinished one.

        A file that was cut short or replaced is read from its beginning. A file that cannot be read is reported once.
        """
        written_s = 0.0
        while True:
            try:
                block, written_s = self._block()
            except FileNotFoundError:
                return
            except OSError as error:
                if self.refused != error.strerror:
                    self.refused = str(error.strerror)
                    yield LogLine(None, self.origin, f"torusrun: {self.path} cannot be read: {self.refused}")
                return
            if not block:
                break
            yield from self._whole_lines(block, written_s)
        if self.left and not whole:
            yield from self._texts(self.left, self.read_bytes, written_s)
            self.left = b""

    def _block(self) -> tuple[bytes, float]:
        """(The next block, b'' at the end of the file; the time when the file was last written)."""
        descriptor = open_kept(self.path)
        try:
            found = os.fstat(descriptor)
            if found.st_size < self.read_bytes or found.st_ino != self.inode:
                self.inode, self.read_bytes, self.left, self.times = found.st_ino, 0, b"", LogTimes(self.path)
            start = written(descriptor, self.read_bytes)
            block = b"" if start is None else os.pread(descriptor, self.block_bytes, start)
            if start is not None and block:
                self.read_bytes = start + len(block)
            return block, found.st_mtime
        finally:
            os.close(descriptor)

    def _whole_lines(self, block: bytes, written_s: float) -> Iterator[LogLine]:
        text = self.left + block
        end = len(text) if len(text) >= BLOCK_BYTES and b"\n" not in text else text.rfind(b"\n") + 1
        text, self.left = text[:end], text[end:]  # a very long line without an end is returned in pieces
        yield from self._texts(text, self.read_bytes - len(self.left), written_s)

    def _texts(self, lines: bytes, end: int, written_s: float) -> Iterator[LogLine]:
        """The lines in these bytes, which end at the byte `end` of the file."""
        at, start = 0, end - len(lines)
        while at < len(lines):
            first = lines.find(b"\n", at) + 1 or len(lines)
            time_s, known = self.times.when(start + first, written_s)
            stop = len(lines) if known >= end else lines.rfind(b"\n", at, known - start) + 1
            for text in lines[at:stop].decode(errors="replace").removesuffix("\n").split("\n"):
                yield LogLine(time_s, self.origin, drawn(text))
            at = stop


LINE_BYTES = 4096


def newest_line(path: Path) -> str:
    """The newest line of a log that is not blank, safe to print; '' if there is none.

    For a progress bar, its newest state.
    """
    found = [line for line in tail(path, 10, LINE_BYTES) if line.strip()]
    return plain(found[-1]).strip() if found else ""


def drawn(line: str) -> str:
    """A line as a terminal would show it at the end: for a progress bar, its newest state."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def tail(path: Path, most: int, largest_bytes: int = TAIL_BYTES) -> list[str]:
    """At most `most` lines at the end of a file, from its last `largest_bytes`; [] if there are none."""
    return [drawn(line.decode(errors="replace")) for line in whole_lines.tail(path, largest_bytes)[-most:]]
