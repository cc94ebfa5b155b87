"""A file of lines that only grows. If the disk is full, lines are lost, but the training continues."""

from __future__ import annotations

import os
from pathlib import Path

from torusrun.training.reporting.output import warn

# A link cannot redirect the lines. Without O_NONBLOCK, a pipe in the file's place would stop the training.
FLAGS = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


class Appended:
    """Appends lines to `path`; if lines are lost, one warning names `what`."""

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what
        self._warned = False
        self._torn = False

    def write(self, lines: bytes) -> None:
        """Append whole lines in one write."""
        if self._torn:
            lines = b"\n" + lines
        try:
            with open(os.open(self._path, FLAGS, 0o644), "wb", buffering=0) as file:
                self._torn = os.write(file.fileno(), lines) < len(lines)
        except OSError as error:
            if not self._warned:
                lost = f"training: {self._what} being lost, {self._path}: {error.strerror}"
                warn(lost)
            self._warned = True
