"""One file of output, read as it grows."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from orchestrator.private import open_regular
from orchestrator.runs.copying import written

BLOCK_BYTES = 1 << 20


@dataclass
class FollowedFile:
    """One file and how far it has been read. `left` is the line that has begun and has no end yet.

    With a `pattern`, only the lines in which it is found are told.
    """

    origin: str
    path: Path
    pattern: re.Pattern[str] | None = None
    read_bytes: int = 0
    left: bytes = b""
    refused: str = ""

    def new(self, *, whole: bool) -> Iterator[str]:
        """The lines that were added since the last call; without `whole` the one that has no end yet, too.

        A file that was cut short is read from its beginning. One that cannot be read is told of once.
        """
        try:
            descriptor = open_regular(self.path)
        except FileNotFoundError:
            return
        except OSError as error:
            if self.refused != error.strerror:
                self.refused = str(error.strerror)
                yield f"{self.origin}torusrun: {self.path} cannot be read: {self.refused}"
            return
        try:
            if os.fstat(descriptor).st_size < self.read_bytes:
                self.read_bytes, self.left = 0, b""
            yield from self._lines(descriptor)
        finally:
            os.close(descriptor)
        if self.left and not whole:
            yield from self._texts(self.left)
            self.left = b""

    def _lines(self, descriptor: int) -> Iterator[str]:
        while (start := written(descriptor, self.read_bytes)) is not None:
            block = os.pread(descriptor, BLOCK_BYTES, start)
            if not block:
                return
            self.read_bytes = start + len(block)
            lines, _, self.left = (self.left + block).rpartition(b"\n")
            yield from self._texts(lines)
            if len(self.left) >= BLOCK_BYTES:  # a line without an end is told in pieces
                yield from self._texts(self.left)
                self.left = b""

    def _texts(self, lines: bytes) -> Iterator[str]:
        for line in lines.decode(errors="replace").splitlines():
            if self.pattern is None or self.pattern.search(line):
                yield f"{self.origin}{line}"
