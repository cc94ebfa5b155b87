"""Many connections over one pair of pipes: used on the user's machine and on the rank's host.

Neither end sends more of a connection than the other has room for (ROOM_BYTES). So what is stored is bounded, and a
slow reader holds up no other connection.
"""

from __future__ import annotations

import contextlib
import os
import select
import socket
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.beside.forwarding.messages import (
    BEGIN,
    COUNT,
    LARGEST_BYTES,
    Message,
    NotAForward,
    Unpacked,
    packed,
)

ROOM_BYTES = 1 << 20  # of a connection, in each direction
CROWDED_BYTES = 1 << 20  # so much waits for the pipe: no more is read from connections
MOST = 256  # connections at the same time
LOOK_S = 1.0
ALIVE_S = 10.0
SILENCE_S = 60.0  # then the other end is lost
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset

Act = Callable[[int], None]  # on events of poll


@dataclass(eq=False)
class Carried:
    """One connection at this end. `others` are the addresses to try if its `link` cannot be opened."""

    link: socket.socket
    opening: bool = False
    others: list[tuple[socket.AddressFamily, str]] = field(default_factory=list)
    reads: bool = True  # more may come from the link
    room: int = ROOM_BYTES  # bytes that the other end has room for
    waiting: bytearray = field(default_factory=bytearray)  # for the link
    written: int = 0  # to the link, and not yet reported as room
    no_more: bool = False  # comes from the other end
    shut: bool = False

    def events(self, crowded: bool) -> int:
        """The events of poll that this connection waits for."""
        if self.opening:
            return select.POLLOUT
        reads = self.reads and self.room > 0 and not crowded
        return (select.POLLIN if reads else 0) | (select.POLLOUT if self.waiting else 0)


class Carrying:
    """One end. It ends with the other one, or when `over` is set."""

    def __init__(self, streams: Streams) -> None:
        self._streams, self.over = streams, False
        self.carried: dict[int, Carried] = {}
        self._arrived, self._outgoing = Unpacked(), bytearray(BEGIN)
        self._heard_s = self._sent_s = time.monotonic()
        self._looked_s = 0.0

    def carry(self) -> None:
        """Carry all connections to the end. Raises SiteError if the other end is silent or sends no messages."""
        for descriptor in (self._streams.input, self._streams.output):
            os.set_blocking(descriptor, False)
        try:
            while not self.over:
                self._step()
        finally:
            for carried in self.carried.values():
                carried.link.close()

    def _step(self) -> None:
        poll, acts = select.poll(), dict[int, Act]()

        def wait(descriptor: int, events: int, act: Act) -> None:
            if events:
                poll.register(descriptor, events)
                acts[descriptor] = act

        crowded = len(self._outgoing) > CROWDED_BYTES
        wait(self._streams.input, select.POLLIN, self._receive)
        wait(self._streams.output, select.POLLOUT if self._outgoing else 0, self._send_waiting)
        for number, carried in self.carried.items():
            wait(carried.link.fileno(), carried.events(crowded), self._act_of(number, carried))
        self.wait_for_more(wait)
        for descriptor, events in poll.poll(LOOK_S * 1000):
            acts[descriptor](events)
        self._look()

    def _look(self) -> None:
        now_s = time.monotonic()
        if self._arrived.begun and now_s > self._heard_s + SILENCE_S:
            raise SiteError(f"the other end of the forward has sent nothing for {SILENCE_S:g} s")
        if now_s > self._sent_s + ALIVE_S:
            self.send(Message.ALIVE, 0)
        if now_s > self._looked_s + LOOK_S:
            self._looked_s = now_s
            self.look()

    # What the two ends do differently.

    def wait_for_more(self, wait: Callable[[int, int, Act], None]) -> None:
        """Add further descriptors that this end waits for."""

    def look(self) -> None:
        """Do what is due once per LOOK_S."""

    def begun(self, content: bytes) -> None:
        """The program on the rank's host is ready."""
        raise NotAForward("the user's side said that it is the program")

    def opened(self, number: int) -> None:
        """The other end has opened a connection."""
        raise NotAForward("the program opened a connection by itself")

    def refused(self, why: str) -> None:
        """The other end could not open a connection."""

    # Messages.

    def send(self, kind: Message, number: int, content: bytes = b"") -> None:
        self._outgoing += packed(kind, number, content)
        self._sent_s = time.monotonic()

    def _send_waiting(self, events: int) -> None:
        try:
            with contextlib.suppress(BlockingIOError):
                del self._outgoing[: os.write(self._streams.output, self._outgoing)]
        except OSError:  # the other end is gone
            self.over = True

    def _receive(self, events: int) -> None:
        try:
            data = os.read(self._streams.input, 2 * LARGEST_BYTES)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        self.over = self.over or not data
        self._heard_s = time.monotonic()
        for kind, number, content in self._arrived.add(data):
            self._take(kind, number, content)

    def _take(self, kind: Message, number: int, content: bytes) -> None:
        if kind is Message.READY:
            return self.begun(content)
        if kind is Message.OPENED:
            return self.opened(number)
        if kind is Message.OVER and content:
            self.refused(content.decode(errors="replace"))
        if not (carried := self.carried.get(number)):  # it is over at this end
            return None
        if kind is Message.OVER:
            return self._close(number, abort=True)
        if kind is Message.BYTES:
            carried.waiting += content
            if len(carried.waiting) > ROOM_BYTES:
                raise NotAForward("the other end sent more data than the buffer holds")
        elif kind is Message.ROOM and len(content) == COUNT.size:
            carried.room += COUNT.unpack(content)[0]
        elif kind is Message.NO_MORE:
            carried.no_more = True
            self._guarded(number, self._finish)
        return None

    # Connections.

    def _act_of(self, number: int, carried: Carried) -> Act:
        def act(events: int) -> None:
            if self.carried.get(number) is not carried:  # it was closed in this step
                return
            if carried.opening:
                return self.connected(number, carried)
            if events & ~select.POLLOUT and carried.reads and carried.room:
                self._guarded(number, self._read)
            if carried.waiting and number in self.carried:
                self._guarded(number, self._write)

        return act

    def connected(self, number: int, carried: Carried) -> None:
        """A link that was being opened is open, or failed."""

    def _guarded(self, number: int, act: Callable[[int, Carried], None]) -> None:
        """Act on a connection; one that fails is over at both ends."""
        try:
            with contextlib.suppress(BlockingIOError):
                act(number, self.carried[number])
        except OSError:
            self.drop(number)

    def _read(self, number: int, carried: Carried) -> None:
        if data := carried.link.recv(min(carried.room, LARGEST_BYTES)):
            carried.room -= len(data)
            return self.send(Message.BYTES, number, data)
        carried.reads = False
        self.send(Message.NO_MORE, number)
        return self._finish(number, carried)

    def _write(self, number: int, carried: Carried) -> None:
        written = carried.link.send(carried.waiting)
        del carried.waiting[:written]
        carried.written += written
        if carried.written >= ROOM_BYTES // 2:
            self.send(Message.ROOM, number, COUNT.pack(carried.written))
            carried.written = 0
        self._finish(number, carried)

    def _finish(self, number: int, carried: Carried) -> None:
        """Pass on that no more comes from the other end; close the connection once both have said so."""
        if carried.no_more and not carried.waiting and not carried.opening and not carried.shut:
            carried.link.shutdown(socket.SHUT_WR)
            carried.shut = True
        if carried.shut and not carried.reads:
            self._close(number)

    def drop(self, number: int, why: str = "") -> None:
        """End a connection at both ends."""
        self.send(Message.OVER, number, why.encode()[:LARGEST_BYTES])
        self._close(number, abort=True)

    def _close(self, number: int, *, abort: bool = False) -> None:
        link = self.carried.pop(number).link
        if abort:
            with contextlib.suppress(OSError):
                link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        link.close()
