"""What travels between a user's terminal and a program on another host: frames, after both sides have proved a secret.

A frame is a letter, the length of what follows as four bytes, and the bytes.
"""

from __future__ import annotations

import enum
import hmac
import secrets
import socket
import struct
import threading

NONCE_BYTES = MAC_BYTES = 32
PROOF_S = 10.0
LARGEST_BYTES = 1 << 20
HEAD = struct.Struct("!cI")
SIZE = struct.Struct("!HH")  # rows, columns
CODE = struct.Struct("!i")


class Frame(bytes, enum.Enum):
    """What a frame carries: keys for the program and their end, a terminal's size; what it writes, its exit code."""

    INPUT = b"i"
    NO_MORE_INPUT = b"n"
    SIZE = b"s"
    OUTPUT = b"o"
    ERRORS = b"e"
    EXIT = b"x"


class Broken(OSError):
    """The other side is gone, or is not the one that was expected."""


class Connection:
    """A socket whose other side has proved that it knows the secret. Any thread may send, one may receive."""

    def __init__(self, link: socket.socket) -> None:
        self._link, self._lock = link, threading.RLock()  # a signal's handler may send while its thread does

    def send(self, kind: Frame, content: bytes = b"") -> None:
        """Raises OSError where the other side is gone."""
        with self._lock:
            self._link.sendall(HEAD.pack(kind.value, len(content)) + content)

    def receive(self) -> tuple[Frame, bytes]:
        """The next frame. Raises OSError where none comes any more."""
        letter, size = HEAD.unpack(exactly(self._link, HEAD.size))
        if size > LARGEST_BYTES:
            raise Broken(f"a frame of {size} bytes")
        try:
            return Frame(letter), exactly(self._link, size)
        except ValueError:
            raise Broken(f"a frame of kind {letter!r}") from None

    def close(self) -> None:
        self._link.close()


def proved(link: socket.socket, key: bytes, *, called: bool) -> Connection:
    """A connection over `link`, once each side knows that the other has `key`; `called` is the side that listened.

    Raises OSError where the other side does not prove it in PROOF_S seconds.
    """
    link.settimeout(PROOF_S)
    mine = secrets.token_bytes(NONCE_BYTES)
    link.sendall(mine)
    theirs = exactly(link, NONCE_BYTES)
    both = mine + theirs if called else theirs + mine
    sides = (b"called", b"calling") if called else (b"calling", b"called")
    own, wanted = (hmac.digest(key, side + both, "sha256") for side in sides)
    if called:  # who listens tells nothing to a stranger
        _check(exactly(link, MAC_BYTES), wanted)
        link.sendall(own)
    else:
        link.sendall(own)
        _check(exactly(link, MAC_BYTES), wanted)
    link.settimeout(None)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return Connection(link)


def exactly(link: socket.socket, size: int) -> bytes:
    """The next `size` bytes. Raises OSError where they do not come."""
    read = bytearray()
    while len(read) < size:
        if not (piece := link.recv(size - len(read))):
            raise Broken("the other side has closed the connection")
        read += piece
    return bytes(read)


def _check(proof: bytes, wanted: bytes) -> None:
    if not hmac.compare_digest(proof, wanted):
        raise Broken("the other side does not know the secret")
