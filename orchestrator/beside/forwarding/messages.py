"""The messages between both ends of a forward: a letter, a connection's number, a size, the content and a line break.

srun passes on what ends with a line break at once, and keeps other bytes until one follows.
"""

from __future__ import annotations

import enum
import struct
from collections.abc import Iterator
from dataclasses import dataclass

from torusrun.orchestrator.base.errors import SiteError

BEGIN = b"torusrun forward begins\n"  # what a shell's start files print comes before
NOISE_BYTES = 1 << 16
HEAD = struct.Struct("!cII")
COUNT = struct.Struct("!I")
LARGEST_BYTES = 1 << 16
END = b"\n"


class Message(bytes, enum.Enum):
    """The kind of a message.

    Of a connection: it was opened, bytes, no more bytes from here, it is over (with the reason if it never worked),
    how many more bytes there is room for. Of the forward (number 0): the program is ready, and a sign of life.
    """

    OPENED = b"o"
    BYTES = b"b"
    NO_MORE = b"n"
    OVER = b"x"
    ROOM = b"r"
    READY = b"y"
    ALIVE = b"a"


KINDS = {kind.value: kind for kind in Message}


@dataclass(frozen=True)
class Ready:
    """What READY has as JSON: the name of the rank's host, and its network namespace (beside/shells/addresses.py)."""

    host: str
    network: str


class NotAForward(SiteError):
    """The received bytes are not a message of a forward."""


def packed(kind: Message, number: int, content: bytes = b"") -> bytes:
    return HEAD.pack(kind.value, number, len(content)) + content + END


class Unpacked:
    """Splits bytes, as they arrive, into messages."""

    def __init__(self) -> None:
        self._buffer, self.begun = bytearray(), False

    def add(self, data: bytes) -> Iterator[tuple[Message, int, bytes]]:
        """The messages that are complete now. Raises NotAForward."""
        self._buffer += data
        if not self.begun and not self._begins():
            return
        while len(self._buffer) >= HEAD.size:
            letter, number, size = HEAD.unpack_from(self._buffer)
            if letter not in KINDS or size > LARGEST_BYTES:
                raise NotAForward(f"the other end sent something that is not a message: {bytes(self._buffer[:80])!r}")
            if len(self._buffer) < (whole := HEAD.size + size + len(END)):
                return
            message = bytes(self._buffer[:whole])
            del self._buffer[:whole]
            if not message.endswith(END):
                raise NotAForward("the other end sent something that is not a message: it does not end")
            yield KINDS[letter], number, message[HEAD.size : -len(END)]

    def _begins(self) -> bool:
        """Drop what came before the messages; whether they have begun."""
        at = self._buffer.find(BEGIN)
        if at < 0 and len(self._buffer) > NOISE_BYTES:
            raise NotAForward(f"the other end printed {bytes(self._buffer[:80])!r} and did not start the forward")
        if at >= 0:
            del self._buffer[: at + len(BEGIN)]
            self.begun = True
        return self.begun
