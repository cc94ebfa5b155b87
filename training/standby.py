"""A rank that waits for its place: `python -m training --standby DESCRIPTOR`, with everything imported.

DESCRIPTOR is a socket. The rank sends READY. One message then gives it its variables and its arguments, and, as
descriptors, its log and the lock of its attempt. If the other side closes the socket, the rank ends.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from training.checkpoint import writer
from training.checkpoint.writer import Writer
from training.meeting.ranks import Ranks

OPTION = "--standby"
READY = b"ready"
LARGEST_BYTES = 1 << 17  # of the message; the kernel's default limit is 208 KiB
NICENESS = 10


def message(variables: dict[str, str], arguments: list[str]) -> bytes:
    """The message that ends the wait."""
    return json.dumps({"variables": variables, "arguments": arguments}).encode()


def wait(descriptor: int, imports: Callable[[], object]) -> tuple[list[str], Writer | None]:
    """Wait for a place: (the arguments; the process that writes checkpoints, if this rank may be rank 0).

    `imports` is called first. From the return on, the variables and the output are those of the place.
    """
    channel = socket.socket(fileno=descriptor)
    may_be_first = Ranks.from_environment(os.environ).local == 0  # rank 0 is the first of its node
    writing = writer.start() if may_be_first else None  # before the imports: see there
    _at_low_priority(imports)
    try:
        channel.send(READY)
        text, descriptors, _, _ = socket.recv_fds(channel, LARGEST_BYTES, 2)
    except BrokenPipeError:
        sys.exit(0)
    if not text:
        sys.exit(0)
    log, lock = descriptors
    found = json.loads(text)
    os.environ.update(found["variables"])
    _write_to(log)
    if writing and Ranks.from_environment(os.environ).rank == 0:
        writing.keep(log, lock)
    os.close(log)
    channel.close()
    return found["arguments"], writing  # the lock stays open as long as this process lives


def _at_low_priority(work: Callable[[], object]) -> None:
    """Call `work` while other processes come first. On Linux each thread has its own niceness, and a process without
    privileges cannot lower it again. So a thread does the work.
    """
    with ThreadPoolExecutor(1, initializer=lambda: os.nice(NICENESS)) as worker:
        worker.submit(work).result()


def _write_to(log: int) -> None:
    """Write all output into the open file `log`."""
    sys.stdout.flush()
    sys.stderr.flush()
    for stream in (1, 2):
        os.dup2(log, stream)
