"""Reads the new bytes of a file that a program appends to, and cuts them into lines or records."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from torusrun.orchestrator.base.private import open_regular

BLOCK_BYTES = 1 << 20
BREAK = re.compile(rb"[\r\n]")  # a progress bar ends its lines with a carriage return alone

Cut = Callable[[bytes], list[bytes]]  # the pieces that end in a block; it remembers the piece that has begun


class Growing:
    """A file, cut by `make_cut()`, which is called again after the file was truncated or replaced."""

    def __init__(self, path: Path, make_cut: Callable[[], Cut]) -> None:
        self.path = path
        self.cut = make_cut()
        self._make_cut = make_cut
        self._position = 0
        self._inode = 0

    def new(self) -> Iterator[bytes]:
        """The pieces that ended since the last call; none if the file cannot be read."""
        try:
            with open(open_regular(self.path), "rb", buffering=0) as file:
                self._notice_new_file(os.fstat(file.fileno()))
                while block := os.pread(file.fileno(), BLOCK_BYTES, self._position):
                    self._position += len(block)
                    yield from self.cut(block)
        except OSError:
            return

    def _notice_new_file(self, status: os.stat_result) -> None:
        if self._inode and (status.st_ino != self._inode or status.st_size < self._position):
            self._position, self.cut = 0, self._make_cut()
        self._inode = status.st_ino


class Lines:
    """Cuts bytes into lines. It truncates lines to `longest_bytes`, and leaves out empty ones."""

    def __init__(self, longest_bytes: int) -> None:
        self._longest_bytes = longest_bytes
        self._begun = b""

    def __call__(self, block: bytes) -> list[bytes]:
        first, *others = BREAK.split(block)
        *whole, begun = [self._begun + first, *others]
        self._begun = begun[: self._longest_bytes]
        return [line[: self._longest_bytes] for line in whole if line]
