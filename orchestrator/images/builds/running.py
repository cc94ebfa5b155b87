"""Run one build of an image at a time to its end. Its output, without secrets, goes into a log and to a callback.

Over all nodes that share the cache, a lock lets one builder in. The text of its file names the holder, for messages
only. The file stays: its removal would let two builders in.
"""

from __future__ import annotations

import os
import selectors
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from torusrun.orchestrator.base import lock, private, proc, process

LARGEST_BYTES = 4096
LONGEST_S = 86400.0  # of a build; an older text is from a killed build
POLL_S = 0.1
TERMINATE_S = 10.0
CHUNK_BYTES = 1 << 16


@contextmanager
def held(path: Path, waiting: Callable[[str], None] = lambda holder: None) -> Iterator[None]:
    """Hold the lock at `path` once it is free. If another build holds it, `waiting` is called once with the holder.

    On a file system without locks nothing is held: two builders may build the same image, and the later rename wins.
    Raises SiteError if the file cannot be made.
    """
    with lock.held(path, waiting=lambda: waiting(holder(path))):
        _sign(path, f"{socket.gethostname()}, process {os.getpid()}, since {time.strftime('%H:%M:%S')}\n")
        try:
            yield
        finally:
            _sign(path, "")


def holder(path: Path) -> str:
    """The last holder of the lock: 'host, process 123, since 12:34:56'; 'another build' if it is unknown."""
    try:
        text = private.read_bytes(path, LARGEST_BYTES).decode("utf-8", "replace").strip()
    except OSError:
        return "another build"
    return private.plain(text.splitlines()[0]) if text else "another build"


def is_signed(path: Path) -> bool:
    """Whether the text of the lock names a build that may be at work: all that is known on a file system without locks.

    True for a day after a build was killed.
    """
    with suppress(OSError):
        status = path.stat()
        return status.st_size > 0 and time.time() - status.st_mtime < LONGEST_S
    return False


def _sign(path: Path, name: str) -> None:
    opened = os.O_WRONLY | os.O_TRUNC
    with suppress(OSError), open(private.open_regular(path, opened), "w", encoding="utf-8") as file:
        file.write(name)  # a full disk must not prevent the use of a cached image


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
        os.fchmod(descriptor, 0o600)
        reading, writing = os.pipe()
        with open(reading, "rb", buffering=0) as pipe:
            with open(writing, "wb") as output:
                child = process.start(
                    argv, environment=environment, output=output, own_group=True, cwd=directory,
                    parent_death=signal.SIGTERM,
                )  # fmt: skip
            try:
                for line in _whole_lines(_chunks(child, pipe)):
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


def _chunks(child: subprocess.Popen[bytes], pipe: IO[bytes]) -> Iterator[bytes]:
    """The output until the child has ended; processes that it left can hold the pipe open for ever."""
    with selectors.DefaultSelector() as ready:
        ready.register(pipe, selectors.EVENT_READ)
        while True:
            over = child.poll() is not None
            chunk = pipe.read(CHUNK_BYTES) if ready.select(0 if over else POLL_S) else None
            if chunk:
                yield chunk
            elif over or chunk == b"":
                break


def _end(child: subprocess.Popen[bytes]) -> None:
    """End a build and all processes that it started. A build that ended by itself may have left some too.

    Some of a runtime's processes may have a group of their own, as those of Apptainer 1.4.5 that mount images.
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
