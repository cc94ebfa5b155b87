"""A local port whose connections are led somewhere else, one thread for each; only this user may use it."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import struct
import threading
import time
from collections.abc import Callable
from ipaddress import IPv4Address
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

from torusrun.orchestrator.base.errors import TorusrunError, UserError
from torusrun.orchestrator.base.terminal.remarks import say, warn

HERE = "127.0.0.1"
LARGEST_PORT = 65_535
MOST = 64  # connections at the same time; others wait
LOOK_S, ENDS_S = 0.5, 1.0
BLOCK_BYTES = 1 << 16
LONGEST_WHY = 200  # characters
USED = (errno.EADDRINUSE, errno.EACCES)  # of a port that another program has, or that only root may use
ABORT = struct.pack("ii", 1, 0)  # SO_LINGER: close by a reset
TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))  # a client may use IPv6 with an address of IPv4
LOCAL, REMOTE, USER, INODE = 1, 2, 7, 9  # fields of a line (linux/net/ipv4/tcp_ipv4.c)
GONE = "0"  # the inode of a socket without a process

Lead = Callable[[socket.socket], None]


class Listening:
    """A listener on the local port `at` ('6007', '0.0.0.0:6007'), or for '' on `port` or a free port of the loopback.

    If what it leads to is on this machine, `port` is taken. Raises UserError if the local port cannot be opened.
    """

    def __init__(self, port: int, at: str, *, here: bool = False) -> None:
        address, named = read_place(port, at)
        self._listener = _listener(address, named, port, here=here)
        self._is_loopback = IPv4Address(address).is_loopback
        self.address = "{}:{}".format(*self._listener.getsockname())
        self._remark, self._links = "", set[socket.socket]()
        self._room = threading.Semaphore(MOST)

    def announce(self, where: str) -> None:
        """Print the address of the port, which leads to `where`."""
        if not self._is_loopback:
            warn(f"everybody who reaches {self.address} can use the port; torusrun does not check who they are")
        say(f"{self.address} forwards to {where}; Ctrl-C ends it")
        print(self.address, flush=True)

    def serve(self, lead: Lead, over: Callable[[], bool]) -> None:
        """Have `lead` carry each connection, in a thread of its own, until it is `over`. Then all are closed."""
        self._listener.settimeout(LOOK_S)
        with self._listener:
            while not over():
                if not self._room.acquire(timeout=LOOK_S):
                    continue
                if not (link := self._accepted()):
                    self._room.release()
                    continue
                self._links.add(link)
                threading.Thread(target=self._carry, args=(lead, link), daemon=True).start()
        for link in [*self._links]:
            aborted(link)

    def _accepted(self) -> socket.socket | None:
        """The next connection of this user, if it comes within LOOK_S."""
        try:
            link, _ = self._listener.accept()
        except TimeoutError:
            return None
        except OSError:  # the client is gone, or this process has no room for it: it waits, and is tried again
            time.sleep(LOOK_S)
            return None
        with contextlib.suppress(OSError):
            if not is_strange(link):
                link.settimeout(None)
                return link
        with link:  # closed after the remark, which belongs to it
            self._say("its client belongs to another user, or has ended")
        return None

    def _carry(self, lead: Lead, link: socket.socket) -> None:
        try:
            with link:
                try:
                    lead(link)
                except (OSError, TorusrunError) as error:
                    if isinstance(error, TorusrunError):
                        self._say(str(error)[:LONGEST_WHY])
                    aborted(link)
        finally:
            self._links.discard(link)
            self._room.release()

    def _say(self, why: str) -> None:
        """Say why a connection was closed, unless that was the last message: a browser tries again and again."""
        if why != self._remark:
            warn(f"a connection was closed: {why}")
        self._remark = why


def joined(left: Any, right: Any) -> None:
    """Carry bytes both ways between two sockets, or what acts like them, until both have ended.

    Each may end its own bytes before the other. Raises OSError if either breaks: then both are over.
    """
    ends: SimpleQueue[OSError | None] = SimpleQueue()

    def carry(source: Any, to: Any) -> None:
        try:
            while data := source.recv(BLOCK_BYTES):
                to.sendall(data)
            to.shutdown(socket.SHUT_WR)
            ends.put(None)
        except OSError as error:
            ends.put(error)

    for ways in ((left, right), (right, left)):
        threading.Thread(target=carry, args=ways, daemon=True).start()
    for _ in range(2):
        if error := ends.get():
            _end(left, right, socket.SHUT_RD)  # not more: a caller may still abort a socket, so that its client knows
            with contextlib.suppress(Empty):
                ends.get(timeout=ENDS_S)
                raise error
            _end(left, right, socket.SHUT_RDWR)  # a thread waits for a socket that takes no more bytes
            raise error


def _end(left: Any, right: Any, how: int) -> None:
    for side in (left, right):
        with contextlib.suppress(OSError):
            side.shutdown(how)


def aborted(link: socket.socket) -> None:
    """Close a connection so that its other end sees that it broke."""
    with contextlib.suppress(OSError):
        link.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, ABORT)
        link.shutdown(socket.SHUT_RD)


def is_strange(link: socket.socket) -> bool:
    """Whether an accepted IPv4 connection is of another user of this machine, or its client is gone.

    By the kernel's list of connections. Of clients on other machines nothing is known: False, as on a system without
    the list. Raises OSError if the list cannot be read.
    """
    theirs, mine = _coded(link.getpeername()), _coded(link.getsockname())
    try:
        lines = [line.split() for table in TABLES for line in table.read_text().splitlines()]
    except FileNotFoundError:
        return False
    for words in lines:
        if words[LOCAL].endswith(theirs) and words[REMOTE].endswith(mine):
            return words[USER] != str(os.geteuid()) or words[INODE] == GONE
    return IPv4Address(link.getpeername()[0]).is_loopback


def _coded(address: tuple[str, int]) -> str:
    """An address and port as the kernel writes them: '0100007F:1770' for 127.0.0.1, port 6000, on a PC."""
    (number,) = struct.unpack("=I", socket.inet_aton(address[0]))
    return f"{number:08X}:{address[1]:04X}"


def read_place(port: int, at: str) -> tuple[str, int | None]:
    """The address and port of `at`; for '' loopback, and None for a port to choose.

    Raises UserError if `at` is none, or if `port` cannot be the port of a host.
    """
    if not 0 < port <= LARGEST_PORT:
        raise UserError(f"PORT must be 1 to {LARGEST_PORT}, not {port}")
    if not at:
        return HERE, None
    address, _, number = at.rpartition(":")
    with contextlib.suppress(ValueError):
        address = str(IPv4Address(HERE if address in ("", "localhost") else address))
        if number.isascii() and number.isdigit() and int(number) <= LARGEST_PORT:
            return address, int(number)
    raise UserError(f"--listen {at}: write a port, or an IPv4 address and a port, as in 6007 or 0.0.0.0:6007")


def _listener(address: str, named: int | None, port: int, *, here: bool) -> socket.socket:
    """A listener on `named`, or else on `port` or a free port. Raises UserError if it cannot be opened."""
    if here and named == port:
        raise UserError(
            f"--listen {named}: the run uses this port of this machine; name another one, or leave out --listen"
        )
    numbers = [named] if named is not None else [0] if here else [port, 0]
    while True:
        number = numbers.pop(0)
        try:
            return socket.create_server((address, number), backlog=4 * MOST)
        except OSError as error:
            if not numbers or error.errno not in USED:
                why = f"{os.strerror(error.errno or 0)}; name another port of this machine, or leave out --listen"
                raise UserError(f"--listen {address}:{number}: {why}") from None
