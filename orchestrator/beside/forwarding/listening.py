"""The user's end of a forward: it listens on a local port, and carries what connects to the rank's host."""

from __future__ import annotations

import contextlib
import errno
import os
import select
import signal
import socket
import threading
from collections.abc import Callable
from ipaddress import IPv4Address

from torusrun.orchestrator.base.errors import SITE_FAILED, SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.json_files import parsed
from torusrun.orchestrator.base.process import Streams
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.terminal.remarks import warn
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.beside.forwarding.carrying import MOST, Act, Carried, Carrying
from torusrun.orchestrator.beside.forwarding.clients import is_strange
from torusrun.orchestrator.beside.forwarding.messages import Message, NotAForward, Ready
from torusrun.orchestrator.beside.shells.addresses import HERE, network

LARGEST_PORT = 65_535
LONGEST_WHY = 200  # characters
USES = (errno.EADDRINUSE, errno.EACCES)  # of a port that another program has, or that only root may use
NO_ROOM = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
PASSES_ON = "-"  # in place of a local port: messages pass through standard input and output

Link = Callable[[Streams], int]


def listen(link: Link, port: int, at: str) -> int:
    """Open a local port that leads to `port` of the rank's host, until `link` has ended; its exit code.

    `link` joins streams to the program there. The local port is `at` ('6007', '0.0.0.0:6007'), or for '' `port`, or any
    free one, of this machine's loopback. Prints its address once the program is there. Raises UserError if it cannot be
    opened, SiteError if the connection is lost.
    """
    if not 0 < port <= LARGEST_PORT:
        raise UserError(f"PORT must be 1 to {LARGEST_PORT}, not {port}")
    address, named = _place(at)
    (their_input, output), (input_, their_output) = os.pipe(), os.pipe()
    near = Listening(Streams(input_, output), port, address, named)
    interrupts = threading.current_thread() is threading.main_thread()
    thread = threading.Thread(target=near.run, args=(interrupts,), daemon=True)
    thread.start()
    code = SITE_FAILED
    try:
        try:
            code = link(Streams(their_input, their_output))
        except BaseException:
            near.over = True  # the program there waits for the end of what this end sends
            raise
        finally:
            os.close(their_input)
            os.close(their_output)
            thread.join()
    except (KeyboardInterrupt, SiteError):
        if near.error is None:
            raise
    if near.error:
        raise near.error
    return code


class Listening(Carrying):
    """Listens on a port `named`, or a free one for None, of `address` once the program has said that it is ready."""

    def __init__(self, streams: Streams, port: int, address: str, named: int | None) -> None:
        super().__init__(streams)
        self.port, self.address, self.named = port, address, named
        self.error: TorusrunError | None = None
        self._listener: socket.socket | None = None
        self._opened, self._said, self._is_full = 0, "", False

    def run(self, interrupts: bool) -> None:
        """Carry all connections; an error is kept, and with `interrupts` it interrupts the main thread's `link`."""
        try:
            self.carry()
        except TorusrunError as error:
            self.error = error
        finally:
            if self._listener:
                self._listener.close()
            os.close(self._streams.input)
            os.close(self._streams.output)
        if self.error and interrupts:
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def begun(self, content: bytes) -> None:
        try:
            ready: Ready = record_of(Ready, parsed(content), plain)
        except ValueError as error:
            raise NotAForward(f"the other end sent something that is not a message: {error}") from None
        if self._listener:
            raise NotAForward("the other end sent its first message twice")
        self._listener = _listener(self.address, self.named, self.port, here=ready.network == _network())
        place = "{}:{}".format(*self._listener.getsockname())
        if not IPv4Address(self.address).is_loopback:
            warn(f"everybody who reaches {place} can use the port; torusrun does not check who they are")
        warn(f"{place} forwards to port {self.port} of {ready.host}; Ctrl-C ends it")
        print(place, flush=True)

    def wait_for_more(self, wait: Callable[[int, int, Act], None]) -> None:
        if self._listener and len(self.carried) < MOST and not self._is_full:
            wait(self._listener.fileno(), select.POLLIN, self._accept)

    def look(self) -> None:
        self._is_full = False

    def _accept(self, events: int) -> None:
        assert self._listener
        try:
            link, _ = self._listener.accept()
            strange = is_strange(link)
        except OSError as error:  # the client is gone, or this process has no room for it: it waits, and is tried again
            self._is_full = error.errno in NO_ROOM
            return
        if strange:
            with link:  # closed after the remark, which belongs to it
                return self._say("a connection was closed: its client belongs to another user, or has ended")
        link.setblocking(False)
        self._opened += 1
        self.carried[self._opened] = Carried(link)
        return self.send(Message.OPENED, self._opened)

    def refused(self, why: str) -> None:
        self._say(f"a connection was closed: {why[:LONGEST_WHY]}")

    def _say(self, text: str) -> None:
        """Say this unless it was the last message: a browser tries again and again."""
        if text != self._said:
            warn(text)
        self._said = text


def _place(at: str) -> tuple[str, int | None]:
    """The address and port of `at`; for '' loopback, and None for a port to choose. Raises UserError."""
    if not at:
        return HERE, None
    address, _, number = at.rpartition(":")
    with contextlib.suppress(ValueError):
        address = str(IPv4Address(HERE if address in ("", "localhost") else address))
        if number.isascii() and number.isdigit() and int(number) <= LARGEST_PORT:
            return address, int(number)
    raise UserError(f"--listen {at}: write a port, or an IPv4 address and a port, as in 6007 or 0.0.0.0:6007")


def _listener(address: str, named: int | None, port: int, *, here: bool) -> socket.socket:
    """A listener on `named`, or else on `port` or a free one. If the run is `here`, its port is not for us.

    Raises UserError if it cannot be opened.
    """
    if here and named == port:
        raise UserError(
            f"--listen {named}: the run uses this port of this machine; name another one, or leave out --listen"
        )
    numbers = [named] if named is not None else [0] if here else [port, 0]
    while True:
        number = numbers.pop(0)
        try:
            listener = socket.create_server((address, number), backlog=MOST)
            listener.setblocking(False)
            return listener
        except OSError as error:
            if not numbers or error.errno not in USES:
                why = f"{os.strerror(error.errno or 0)}; name another port of this machine, or leave out --listen"
                raise UserError(f"--listen {address}:{number}: {why}") from None


def _network() -> str:
    """The network namespace of this process; '' where the system does not name it."""
    with contextlib.suppress(OSError):
        return network()
    return ""
