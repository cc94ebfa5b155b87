"""Reads the new bytes of a file that a program appends to, and cuts them into lines."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from orchestrator.base.private import open_regular

BLOCK_BYTES = 1 << 20
BREAK = re.compile(rb"[\r\n]")  # a progress bar ends its lines with a carriage return alone


class Growing:
    """The new bytes of a file. `generation` counts how often the file was truncated or replaced."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.generation = 0
        self._position = 0
        self._inode = 0

    def blocks(self) -> Iterator[bytes]:
        """The bytes appended since the last call, in blocks; none if the file cannot be read."""
        try:
            with open(open_regular(self.path), "rb", buffering=0) as file:
                self._notice_new_file(os.fstat(file.fileno()))
                while block := os.pread(file.fileno(), BLOCK_BYTES, self._position):
                    self._position += len(block)
                    yield block
        except OSError:
            return

    def _notice_new_file(self, status: os.stat_result) -> None:
        if self._inode and (status.st_ino != self._inode or status.st_size < self._position):
            self.generation += 1
            self._position = 0
        self._inode = status.st_ino


class Lines:
    """Cuts bytes into lines. It truncates lines to `longest_bytes`, and leaves out empty ones."""

    def __init__(self, longest_bytes: int) -> None:
        self._longest_bytes = longest_bytes
        self._begun = b""

    def feed(self, block: bytes) -> list[bytes]:
        """The lines that end in `block`."""
        first, *others = BREAK.split(block)
        if not others:
            self._begun = (self._begun + first)[: self._longest_bytes]
            return []
        *whole, begun = [self._begun + first, *others]
        self._begun = begun[: self._longest_bytes]
        return [line[: self._longest_bytes] for line in whole if line]

    def rest(self) -> list[bytes]:
        """The open last line, if there is one. It is then forgotten."""
        line, self._begun = self._begun, b""
        return [line] if line else []


class GrowingLines:
    """The new lines of a growing file."""

    def __init__(self, path: Path, longest_bytes: int) -> None:
        self._file = Growing(path)
        self._longest_bytes = longest_bytes
        self._lines = Lines(longest_bytes)
        self._generation = 0

    def new(self, final: bool) -> Iterator[bytes]:
        """The lines that ended since the last call; with `final` also an open last line."""
        for block in self._file.blocks():
            if self._generation != self._file.generation:
                self._generation, self._lines = self._file.generation, Lines(self._longest_bytes)
            yield from self._lines.feed(block)
        if final:
            yield from self._lines.rest()
