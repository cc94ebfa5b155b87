"""Frames between a user's terminal and a program on another host. Only these two can make them.

A frame is a letter, the size of its content as four bytes, the content, and a MAC: the HMAC-SHA256 of the frame's
number and of all bytes before the MAC. Each direction has a key and counts its frames from 0. So a frame that a third
party made, changed, left out, repeated, reordered or sent back ends the connection.

At first both sides prove that they know the request's secret, and derive frame keys. Each side sends 32 random bytes.
First the calling side proves that it knows the secret, then the called side. Proofs and keys are HMAC-SHA256 with the
secret as key, over a purpose, a side and the random bytes of both sides.
"""

from __future__ import annotations

import contextlib
import enum
import errno
import hmac
import os
import secrets
import selectors
import socket
import struct
import threading
from collections.abc import Generator

MAC_BYTES = 32
LARGEST_BYTES = 1 << 20
HEAD = struct.Struct("!cI")
NUMBER = struct.Struct("!Q")
SIZE = struct.Struct("!HH")  # rows, columns
CODE = struct.Struct("!i")
LOOK_S = 0.2
CHUNK_BYTES = 65_536
FORGED = "a message was forged or changed in transit; somebody may intercept the connection"
NONCE_BYTES = 32
MOST_LINKS = 128  # links at once; then the oldest is dropped, since a side with the secret proves it at once
CALLED, CALLING = b"called", b"calling"
# Who waits for a host that lost its power or its network notices after a minute.
SILENCE = (socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3)


class Frame(bytes, enum.Enum):
    """The kind of a frame.

    To the program: input, the end of input, a terminal's size. From it: output, errors, exit code, why it was ended.
    """

    INPUT = b"i"
    NO_MORE_INPUT = b"n"
    SIZE = b"s"
    OUTPUT = b"o"
    ERRORS = b"e"
    EXIT = b"x"
    ENDED = b"d"


class Broken(OSError):
    """The other side is gone, or is a stranger."""


class Connection:
    """A socket to the other side, with the keys of both directions. Any thread may send; a single thread receives."""

    def __init__(self, link: socket.socket, *, sends: bytes, receives: bytes) -> None:
        self.link, self._lock = link, threading.Lock()
        self._sends, self._receives = sends, receives
        self._sent = self._received = 0

    def send(self, kind: Frame, content: bytes = b"") -> None:
        """Send one frame. Raises OSError if the other side is gone."""
        with self._lock:
            frame = HEAD.pack(kind.value, len(content)) + content
            mac = _mac(self._sends, self._sent, frame)
            self._sent += 1
            self.link.sendall(frame + mac)

    def receive(self) -> tuple[Frame, bytes]:
        """The next frame. Raises OSError if none follows, or if it is not from the other side."""
        head = self._exactly(HEAD.size)
        letter, size = HEAD.unpack(head)
        if size > LARGEST_BYTES:
            raise Broken(FORGED)
        content = self._exactly(size)
        if not hmac.compare_digest(self._exactly(MAC_BYTES), _mac(self._receives, self._received, head + content)):
            raise Broken(FORGED)
        self._received += 1
        return Frame(letter), content

    def _exactly(self, size: int) -> bytes:
        read = bytearray()
        while len(read) < size:
            if not (piece := self.link.recv(size - len(read))):
                raise Broken("the connection was closed too early")
            read += piece
        return bytes(read)

    def close(self) -> None:
        """Close the connection, also for a thread that is sending or receiving."""
        with contextlib.suppress(OSError):
            self.link.shutdown(socket.SHUT_RDWR)
        self.link.close()


def _mac(key: bytes, number: int, frame: bytes) -> bytes:
    return hmac.digest(key, NUMBER.pack(number) + frame, "sha256")


def written(descriptor: int, content: bytes) -> bool:
    """Write all of `content`; False if its reader is gone."""
    try:
        while content:
            content = content[os.write(descriptor, content) :]
    except OSError:
        return False
    return True


def _proving(link: socket.socket, key: bytes, side: bytes) -> Generator[None, None, Connection]:
    """The connection, once the other side has proved itself over `link`.

    It yields until the link is writable, then whenever it needs more bytes. Raises OSError if link or proof fails.
    """
    yield
    if number := link.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
        raise OSError(number, os.strerror(number))
    mine, other = secrets.token_bytes(NONCE_BYTES), CALLING if side == CALLED else CALLED
    link.sendall(mine)
    theirs = yield from _received(link, NONCE_BYTES)
    both = mine + theirs if side == CALLED else theirs + mine

    def derived(purpose: bytes, of: bytes) -> bytes:
        return hmac.digest(key, b"torusrun shell, %b, %b: %b" % (purpose, of, both), "sha256")

    if side == CALLING:  # the called side proves nothing to an unproved caller
        link.sendall(derived(b"proof", side))
    proof = yield from _received(link, MAC_BYTES)
    if not hmac.compare_digest(proof, derived(b"proof", other)):
        raise Broken("the other side does not know the secret")
    if side == CALLED:
        link.sendall(derived(b"proof", side))
    link.setblocking(True)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for option, value in SILENCE:
        link.setsockopt(socket.IPPROTO_TCP, option, value)
    return Connection(link, sends=derived(b"frames", side), receives=derived(b"frames", other))


def _received(link: socket.socket, size: int) -> Generator[None, None, bytes]:
    read = b""
    while len(read) < size:
        yield
        if not (piece := link.recv(size - len(read))):
            raise Broken("the other side has closed the connection")
        read += piece
    return read


class Proofs:
    """Links on which the other side must still prove the secret. The first complete proof makes the connection.

    All links are read concurrently, so that a slow or silent link delays no other. `failures` maps addresses to the
    reasons why their links ended.
    """

    def __init__(self, key: bytes, side: bytes) -> None:
        self._key, self._side = key, side
        self._links = selectors.DefaultSelector()
        self._proofs: dict[socket.socket, tuple[str, Generator[None, None, Connection]]] = {}  # the oldest first
        self.failures: dict[str, str] = {}

    def listen(self, listener: socket.socket) -> None:
        """Add every link that `listener` accepts from now on."""
        listener.setblocking(False)
        self._links.register(listener, selectors.EVENT_READ, listener)

    def call(self, address: str, port: int) -> None:
        """Add a link to `address`."""
        link = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
        link.setblocking(False)
        number = link.connect_ex((address, port))
        self.add(link, address)
        if number not in (0, errno.EINPROGRESS):
            self._drop(link, os.strerror(number))

    def add(self, link: socket.socket, name: str) -> None:
        """Add a link that is open, or that opens."""
        link.setblocking(False)
        if len(self._proofs) == MOST_LINKS:
            self._drop(next(iter(self._proofs)), "it was too slow")
        proof = _proving(link, self._key, self._side)
        next(proof)
        self._proofs[link] = name, proof
        self._links.register(link, selectors.EVENT_WRITE)

    def step(self, longest_s: float) -> Connection | None:
        """Wait for bytes or a link, at most `longest_s`; the connection, if a proof is complete."""
        for ready, events in self._links.select(longest_s):
            if ready.data:
                with contextlib.suppress(OSError):  # the caller may be gone
                    link, (address, *_) = ready.data.accept()
                    self.add(link, address)
            elif connection := self._go_on(ready.fileobj, events):  # type: ignore[arg-type]
                return connection
        return None

    def _go_on(self, link: socket.socket, events: int) -> Connection | None:
        if link not in self._proofs:  # it was dropped for a newer link
            return None
        try:
            next(self._proofs[link][1])
            if events == selectors.EVENT_WRITE:
                self._links.modify(link, selectors.EVENT_READ)
        except StopIteration as proved:
            self._links.unregister(link)
            del self._proofs[link]
            return proved.value  # type: ignore[no-any-return]
        except OSError as error:
            self._drop(link, error.strerror or str(error))
        return None

    def _drop(self, link: socket.socket, why: str) -> None:
        self._links.unregister(link)
        link.close()
        self.failures[self._proofs.pop(link)[0]] = why

    @property
    def waiting(self) -> list[str]:
        """The names of the links that are neither proved nor ended."""
        return [name for name, _ in self._proofs.values()]

    def __enter__(self) -> Proofs:
        return self

    def __exit__(self, *raised: object) -> None:
        for link in self._proofs:
            link.close()
        self._links.close()
