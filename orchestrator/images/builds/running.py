"""Run a build to its end. Its output, without secrets, is written into a log and passed to a callback."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO

from orchestrator.base import private, process

POLL_S = 0.1
TERMINATE_S = 10.0
CHUNK_BYTES = 1 << 16


def run(
    argv: Sequence[str],
    environment: Mapping[str, str],
    directory: Path,
    log: Path,
    progress: Callable[[str], None],
    redacted: Callable[[str], str],
) -> int:
    """Run a build in `directory`, its output in `log` and line by line in `progress`. Returns its exit code."""
    descriptor = private.open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(descriptor, "w", encoding="utf-8", errors="replace", buffering=1) as kept:
        os.fchmod(descriptor, 0o600)  # an older version made it readable for others
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as said:
            with open(writing, "wb") as output:
                child = process.start(
                    argv, environment=environment, output=output, own_group=True, cwd=directory,
                    parent_death=signal.SIGTERM,
                )  # fmt: skip
            try:
                _follow(child, said, RedactedLines(kept, progress, redacted))
                return child.wait()
            finally:
                _end(child)


class RedactedLines:
    """Collects output and passes on whole lines, since any other cut can split a secret."""

    def __init__(self, kept: IO[str], progress: Callable[[str], None], redacted: Callable[[str], str]) -> None:
        self.kept, self.progress, self.redacted = kept, progress, redacted
        self.rest = b""

    def add(self, said: bytes) -> None:
        *whole, self.rest = (self.rest + said).split(b"\n")
        for line in whole:
            self._tell(line)

    def end(self) -> None:
        if self.rest:
            self._tell(self.rest)

    def _tell(self, line: bytes) -> None:
        text = self.redacted(line.decode(errors="replace"))
        self.kept.write(text + "\n")
        if text.strip():
            self.progress(text.strip())


def _follow(child: subprocess.Popen[bytes], said: IO[bytes], lines: RedactedLines) -> None:
    """Pass on output until the child has ended; processes that it left can hold the pipe open for ever."""
    with selectors.DefaultSelector() as ready:
        ready.register(said, selectors.EVENT_READ)
        while True:
            over = child.poll() is not None
            chunk = said.read(CHUNK_BYTES) if ready.select(0 if over else POLL_S) else None
            if chunk:
                lines.add(chunk)
            elif over or chunk == b"":
                break
    lines.end()


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a build and all processes that it started. A build that ended by itself may have left some too."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(child.pid, number)
            child.wait(TERMINATE_S)
        except (ProcessLookupError, PermissionError):
            return
        except subprocess.TimeoutExpired:
            continue
