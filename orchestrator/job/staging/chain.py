"""The chain of an attempt's hosts: each takes what is staged from the host above, while it sends it to the host below.

So the shared disk is read once, each link carries each byte once, and all hosts are done a block apart: the time is
size / slowest link + hosts x block / link. A tree's root would send everything log2(hosts) times.

Both sides of a connection prove the attempt's secret, and every frame has a MAC (job/connection.py). What goes down:
the list of the copies, their blocks and checksums, and the word to begin. What goes up: which of them are wanted, how
far this host and those below it are, and that all of them are done. An error goes both ways.
"""

from __future__ import annotations

import contextlib
import json
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from torusrun.orchestrator.base.errors import CutOffError, SiteError
from torusrun.orchestrator.base.json_files import read_object, required, write_json
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.job.connection import CALLED, CALLING, Connection, Frame, Proofs
from torusrun.training.meeting.addresses import RendezvousError, listen

LOOK_S = 0.1
REPORT_S = 2.0  # between reports of progress
REACH_S = 30.0  # that a host which listens may take to answer
REASON_S = 2.0  # that the reason of a broken connection may take to arrive
BLOCK, MESSAGE = Frame.OUTPUT, Frame.INPUT  # of a copy, and [word, value] as JSON
LIST, WANTED, SUM, REPORT, DONE, BEGIN = "list", "wanted", "sum", "report", "done", "begin"


class Neighbour:
    """The host above or below this host."""

    def __init__(self, host: str, connection: Connection) -> None:
        self.host, self._connection = host, connection

    def send(self, block: bytes) -> None:
        """Send a block. Raises CutOffError."""
        self._send(BLOCK, block)

    def tell(self, word: str, value: Any = None) -> None:
        """Send a message. Raises CutOffError."""
        self._send(MESSAGE, json.dumps([word, value]).encode())

    def _send(self, kind: Frame, content: bytes) -> None:
        try:
            self._connection.send(kind, content)
        except OSError as error:
            raise self._lost(error) from None

    def _receive(self) -> bytes | tuple[str, Any]:
        """The next block, or the next message. Raises CutOffError, also for the error of another host."""
        try:
            kind, content = self._connection.receive()
            if kind is Frame.ENDED:
                raise CutOffError(plain(content.decode(errors="replace")))
            if kind is BLOCK:
                return content
            word, value = json.loads(content)
            return str(word), value
        except (OSError, ValueError, TypeError) as error:
            raise self._lost(error) from None

    def hear(self, wanted: str) -> Any:
        """The value of the next message, which must have this word. Raises CutOffError."""
        got = self._receive()
        if isinstance(got, bytes) or got[0] != wanted:
            raise self._lost(f"it did not send {wanted!r} when it should")
        return got[1]

    def _lost(self, why: object) -> CutOffError:
        return CutOffError(f"the connection to {self.host}, by which copies come or go, has ended: {why}")

    def end(self, reason: str = "") -> None:
        """Close the connection, with a reason for the other side, if any."""
        if reason:  # the other side may read no more
            telling = threading.Thread(target=self._last, args=(reason,), daemon=True)
            telling.start()
            telling.join(REASON_S)
        self._connection.close()

    def _last(self, reason: str) -> None:
        with contextlib.suppress(OSError):
            self._connection.send(Frame.ENDED, reason.encode())


class Above(Neighbour):
    """The host above, which sends."""

    def blocks(self) -> Iterator[bytes]:
        """The blocks of the next copy; then `sum` is the checksum that they were sent with. Raises CutOffError."""
        while isinstance(got := self._receive(), bytes):
            yield got
        if got[0] != SUM:
            raise self._lost("a copy ended too early")
        self.sum = got[1]


class Below(Neighbour):
    """The host below. A thread reads what comes up: `reported` gets each report, `failed` an error."""

    def __init__(
        self, host: str, connection: Connection, reported: Callable[[Any], None], failed: Callable[[CutOffError], None]
    ) -> None:
        super().__init__(host, connection)
        self._reported, self._failed = reported, failed
        self._answers: queue.Queue[Any] = queue.Queue()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        try:
            while True:
                got = self._receive()
                if got[0] == REPORT:
                    self._reported(got[1])
                else:
                    self._answers.put(got)
        except CutOffError as error:
            self._failed(error)

    def answer(self, wanted: str, check: Callable[[], None]) -> Any:
        """The value of the next answer, which must have this word. Raises CutOffError, also if `check` does."""
        while True:
            check()
            with contextlib.suppress(queue.Empty):
                got = self._answers.get(timeout=LOOK_S)
                if got[0] != wanted:
                    raise self._lost(f"it did not answer {wanted!r} when it should")
                return got[1]


class Chain:
    """This host, number `index` of `hosts`, and its neighbours, which the first and the last lack: a context.

    `record` has the path where each host says where it listens. `shown` gets the progress of all hosts, on the first:
    what is copied, the bytes that they have written, and those that they have to write.
    """

    def __init__(
        self,
        index: int,
        hosts: Sequence[str],
        record: Callable[[int], Path],
        *,
        key: bytes,
        interface: str | None,
        shown: Callable[[str, int, int], None],
    ) -> None:
        self.host, self.alone = hosts[index], len(hosts) == 1
        self.above: Above | None = None
        self.below: Below | None = None
        self.name = ""  # of what is copied
        self.written = self.to_write = 0  # bytes, by this host
        self._lower = 0, 0  # by those below
        self._index, self._hosts, self._record, self._key = index, hosts, record, key
        self._interface, self._shown = interface, shown
        self._error: CutOffError | None = None
        self._reported_s, self._lock = 0.0, threading.Lock()

    def __enter__(self) -> Chain:
        with contextlib.ExitStack() as opened:
            if self._index + 1 < len(self._hosts):
                proofs = opened.enter_context(Proofs(self._key, CALLED))
                proofs.listen(opened.enter_context(self._listening()))
            if self._index:
                self.above = Above(self._hosts[self._index - 1], self._called())
            if self._index + 1 < len(self._hosts):
                while not (link := proofs.step(LOOK_S)):
                    pass
                self.below = Below(self._hosts[self._index + 1], link, self._told, self._failed)
        return self

    def _listening(self) -> socket.socket:
        try:
            listener = listen(self._interface)
        except RendezvousError as error:
            raise SiteError(str(error)) from None
        address, port, *_ = listener.getsockname()
        write_json(self._record(self._index), {"address": address, "port": port}, secret=True)
        return listener

    def _called(self) -> Connection:
        """The connection to the host above, once that listens. Raises CutOffError if it cannot be reached."""
        path, until_s = self._record(self._index - 1), float("inf")
        while True:
            if kept := read_object(path):
                until_s = min(until_s, time.monotonic() + REACH_S)
                with Proofs(self._key, CALLING) as proofs:
                    proofs.call(required(path, kept, "address", str), required(path, kept, "port", int))
                    while proofs.waiting and time.monotonic() < until_s:
                        if link := proofs.step(LOOK_S):
                            return link
                    why = next(iter(proofs.failures.values()), "it does not answer")
                if time.monotonic() > until_s:
                    host = self._hosts[self._index - 1]
                    raise SiteError(f"{self.host} cannot reach {host} at {kept['address']}, to stage from there: {why}")
            time.sleep(LOOK_S)

    def check(self) -> None:
        """Raise CutOffError if a host below has failed."""
        if self._error:
            raise self._error

    @property
    def totals(self) -> tuple[int, int]:
        """The bytes that this host and those below have written, and those that they have to write in all."""
        return self.written + self._lower[0], self.to_write + self._lower[1]

    def report(self, *, now: bool = False) -> None:
        """Report how far this host and those below are, to the host above, if it is time."""
        with self._lock:
            if not now and time.monotonic() < self._reported_s + REPORT_S:
                return
            self._reported_s = time.monotonic()
            if self.above:
                self.above.tell(REPORT, self.totals)
            else:
                self._shown(self.name, *self.totals)

    def all_done(self, mine: Any) -> dict[str, Any]:
        """Wait until all hosts are done; what this host and those below it record, by their names."""
        done = {self.host: mine}
        if self.below:
            done |= self.below.answer(DONE, self.check)
        self.report(now=True)
        if self.above:
            self.above.tell(DONE, done)
            self.above.hear(BEGIN)
        if self.below:
            self.below.tell(BEGIN)
        return done

    def _told(self, numbers: Any) -> None:
        self._lower = int(numbers[0]), int(numbers[1])
        with contextlib.suppress(CutOffError):
            self.report()

    def _failed(self, error: CutOffError) -> None:
        self._error = error
        if self.above:
            self.above.end(str(error))  # which wakes whoever receives from it

    def __exit__(self, kind: object, error: BaseException | None, trace: TracebackType | None) -> None:
        if isinstance(error, CutOffError) and self.below:  # the host below may have sent the reason
            self.below.reader.join(REASON_S)
        cause = self._error if isinstance(error, CutOffError) and self._error else error
        for side in (self.above, self.below):
            if side:
                side.end("" if cause is None else str(cause) or f"{self.host} was asked to stop")
        if cause and cause is not error:
            raise cause from None
