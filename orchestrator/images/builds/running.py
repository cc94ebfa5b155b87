"""Run a build to its end. Its output, without secrets, is written into a log and passed to a callback."""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

from torusrun.orchestrator.base import private, proc, process

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
    tick: Callable[[], None] = lambda: None,
) -> int:
    """Run a build in `directory`, its output in `log` and line by line in `progress`. Returns its exit code.

    `tick` is called all the while, ten times a second if the build prints nothing.
    """
    descriptor = private.open_regular(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    with open(descriptor, "w", encoding="utf-8", errors="replace", buffering=1) as kept:
        os.fchmod(descriptor, 0o600)
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as said:
            with open(writing, "wb") as output:
                child = process.start(
                    argv, environment=environment, output=output, own_group=True, cwd=directory,
                    parent_death=signal.SIGTERM,
                )  # fmt: skip
            try:
                for line in _whole_lines(_chunks(child, said, tick)):
                    text = redacted(line.decode(errors="replace"))
                    kept.write(text + "\n")
                    if text.strip():
                        progress(text.strip())
                return child.wait()
            finally:
                _end(child)


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """The lines of an output; any other cut can split a secret."""
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole
    if rest:
        yield rest


def _chunks(child: subprocess.Popen[bytes], said: IO[bytes], tick: Callable[[], None]) -> Iterator[bytes]:
    """The output until the child has ended; processes that it left can hold the pipe open for ever."""
    with selectors.DefaultSelector() as ready:
        ready.register(said, selectors.EVENT_READ)
        while True:
            tick()
            over = child.poll() is not None
            chunk = said.read(CHUNK_BYTES) if ready.select(0 if over else POLL_S) else None
            if chunk:
                yield chunk
            elif over or chunk == b"":
                break


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a build and all processes that it started. A build that ended by itself may have left some too.

    Some runtimes give processes of theirs a group of their own, as Apptainer 1.4.5 those that mount images.
    """
    below = proc.descendants(child.pid)[1:] if child.returncode is None else []
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, number)
        with suppress(subprocess.TimeoutExpired):
            child.wait(TERMINATE_S)
    for pid in below:
        with suppress(OSError):
            os.kill(pid, signal.SIGKILL)
