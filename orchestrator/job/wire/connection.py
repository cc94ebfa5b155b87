"""Frames between a user's terminal and a program on another host. Only these two can make them.

A frame is a letter, the size of its content as four bytes, the content, and a MAC: the HMAC-SHA256 of the frame's
number and of all bytes before the MAC. Each direction has a key and counts its frames from 0. So a frame that a third
party made, changed, left out, repeated, reordered or sent back ends the connection.
"""

from __future__ import annotations

import contextlib
import enum
import hmac
import os
import socket
import struct
import threading

MAC_BYTES = 32
LARGEST_BYTES = 1 << 20
HEAD = struct.Struct("!cI")
NUMBER = struct.Struct("!Q")
SIZE = struct.Struct("!HH")  # rows, columns
CODE = struct.Struct("!i")
LOOK_S = 0.2
CHUNK_BYTES = 65_536
FORGED = "a message was forged or changed in transit; somebody may intercept the connection"


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
    """The other side is gone, or is not the expected one."""


class Connection:
    """A socket to the other side, with the keys of both directions. Any thread may send; only one may receive."""

    def __init__(self, link: socket.socket, *, sends: bytes, receives: bytes) -> None:
        self._link, self._lock = link, threading.Lock()
        self._sends, self._receives = sends, receives
        self._sent = self._received = 0

    def send(self, kind: Frame, content: bytes = b"") -> None:
        """Send one frame. Raises OSError if the other side is gone."""
        with self._lock:
            frame = HEAD.pack(kind.value, len(content)) + content
            mac = _mac(self._sends, self._sent, frame)
            self._sent += 1
            self._link.sendall(frame + mac)

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
            if not (piece := self._link.recv(size - len(read))):
                raise Broken("the connection was closed too early")
            read += piece
        return bytes(read)

    def close(self) -> None:
        """Close the connection, also for a thread that is sending or receiving."""
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_RDWR)
        self._link.close()


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
