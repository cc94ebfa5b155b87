"""A rank that waits for its place with everything imported: `python -m torusrun.training --standby DESCRIPTOR`.

DESCRIPTOR is a socket. The rank sends READY. One message then gives it its variables and its arguments, and, as
descriptors, its log and the lock of its attempt. If the other side closes the socket, the rank ends.

With `--elastic`, or `--spare`, in place of `--standby`, a rank that lost another one leaves its attempt, sends CUT_OFF,
and waits for its place in the next one. The message LEAVE ends what still waits for others: they may be lost without a
sign. All but `--elastic` import while others are at work.
"""

from __future__ import annotations

import gc
import json
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from queue import SimpleQueue

from torusrun.training.checkpoint import writer
from torusrun.training.checkpoint.writer import Writer
from torusrun.training.meeting.ranks import Ranks
from torusrun.training.reporting.exits import EXIT_CUT_OFF
from torusrun.training.script.given import still_open

STANDBY, ELASTIC, SPARE = "--standby", "--elastic", "--spare"
OPTIONS = (STANDBY, ELASTIC, SPARE)
READY, CUT_OFF, LEAVE = b"ready", b"cut off", b"leave"
LARGEST_BYTES = 1 << 17  # of the message; the kernel's default limit is 208 KiB
NICENESS = 10
LEAVE_S = 2.0  # for the end of all that waits for other ranks


def message(variables: dict[str, str], arguments: list[str]) -> bytes:
    """The message that ends the wait."""
    return json.dumps({"variables": variables, "arguments": arguments}).encode()


class StandbyRank:
    """A rank that waits for its place, at first and, if it is elastic, each time that it has lost another rank."""

    def __init__(self, option: str, descriptor: int, imports: Callable[[], object]) -> None:
        """Call `imports`, and report that this rank is ready."""
        self._channel, self._elastic = socket.socket(fileno=descriptor), option != STANDBY
        may_be_first = Ranks.from_environment(os.environ).local == 0  # rank 0 is the first of its node
        self._writing = writer.start() if may_be_first else None  # before the imports: see there
        self._lock = -1
        if option == ELASTIC:  # the other ranks wait for this one
            imports()
        else:
            _at_low_priority(imports)
        self._places: SimpleQueue[tuple[bytes, list[int]]] = SimpleQueue()
        if self._elastic:
            threading.Thread(target=self._listen, name="places", daemon=True).start()
        self._send(READY)

    def placed(self) -> tuple[list[str], Writer | None]:
        """Wait for a place: (the arguments; the process that writes checkpoints, if this rank may be rank 0).

        From the return on, the variables and the output are those of the place.
        """
        text, descriptors = self._places.get() if self._elastic else self._received()
        if not text:
            sys.exit(0)
        if self._elastic:
            from torusrun.training.meeting import rendezvous

            rendezvous.again()
        log, self._lock = descriptors
        found = json.loads(text)
        os.environ.update(found["variables"])
        _write_to(log)
        if self._writing and Ranks.from_environment(os.environ).rank == 0:
            self._writing.keep(log, self._lock)
        os.close(log)
        if not self._elastic:
            self._channel.close()
        return found["arguments"], self._writing  # the lock stays open as long as this process works for the attempt

    def leaves(self) -> bool:
        """Leave the attempt, of which another rank is lost; False if this rank is to end instead.

        All that still waits for other ranks ends, and the lock is released, also by the process that writes
        checkpoints, as soon as it has finished. Where that takes too long, the process ends.
        """
        if not self._elastic:
            return False
        late = threading.Timer(LEAVE_S, os._exit, [EXIT_CUT_OFF])
        late.daemon = True
        late.start()
        from torusrun.training.meeting import rendezvous

        if not rendezvous.abandoned():
            return False
        gc.collect()
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        had, self._writing = self._writing, None
        if had:
            had.leave()
        os.close(self._lock)
        late.cancel()
        self._send(CUT_OFF)
        if had:
            self._writing = writer.start_anew(self._kept())
        return True

    def _kept(self) -> list[int]:
        """The open pipes by which the wrapper of this rank waits for the process that writes checkpoints."""
        return [
            number for number in still_open(os.environ.get("TORUSRUN_KEEP", "")) if number != self._channel.fileno()
        ]

    def _listen(self) -> None:
        """Handle what arrives, in a thread of its own, since this rank may wait for others meanwhile."""
        while True:
            text, descriptors = self._received()
            if text != LEAVE:
                self._places.put((text, descriptors))
            else:
                from torusrun.training.meeting import rendezvous

                with suppress(Exception):  # the groups may just be ended
                    rendezvous.cut()
            if not text:
                return

    def _received(self) -> tuple[bytes, list[int]]:
        """(the next message, its descriptors); nothing at the end of all messages."""
        try:
            text, descriptors, _, _ = socket.recv_fds(self._channel, LARGEST_BYTES, 2)
        except OSError:
            return b"", []
        return text, descriptors

    def _send(self, word: bytes) -> None:
        try:
            self._channel.send(word)
        except BrokenPipeError:
            sys.exit(0)


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
