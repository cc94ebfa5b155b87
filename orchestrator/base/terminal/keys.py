"""Single keys from the terminal; its settings are restored afterwards."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

NAMES = {
    b"\x1b[A": "up", b"\x1bOA": "up", b"k": "up",
    b"\x1b[B": "down", b"\x1bOB": "down", b"j": "down",
    b"\x1b[5~": "page up", b"\x1b[6~": "page down", b" ": "page down",
    b"\x1b[H": "first", b"\x1bOH": "first", b"\x1b[1~": "first", b"g": "first",
    b"\x1b[F": "last", b"\x1bOF": "last", b"\x1b[4~": "last", b"G": "last",
    b"\r": "enter", b"\n": "enter", b"\x1b[C": "enter", b"\x1bOC": "enter", b"l": "enter",
    b"\x1b": "back", b"\x7f": "back", b"\x1b[D": "back", b"\x1bOD": "back", b"h": "back",
    b"n": "nodes",
    b"q": "quit", b"Q": "quit",
}  # fmt: skip
KEY = re.compile(rb"\x1b\[[0-9;]*[A-Za-z~]|\x1bO[A-Z]|.", re.DOTALL)
MOST_BYTES = 1024


@dataclass(frozen=True)
class Keys:
    """The keys that a user presses in the terminal `stream`; there are none without it."""

    stream: int | None

    def within(self, seconds: float) -> list[str]:
        """The names of the pressed keys; waits at most `seconds` for the first."""
        if self.stream is None:
            time.sleep(seconds)
            return []
        if not select.select([self.stream], [], [], seconds)[0]:
            return []
        pressed = os.read(self.stream, MOST_BYTES)
        if not pressed:  # the other end of the terminal is gone
            return ["quit"]
        return [NAMES[key] for key in KEY.findall(pressed) if key in NAMES]


@contextmanager
def keys() -> Iterator[Keys]:
    """In the block standard input passes single keys on without an echo, if it is a terminal."""
    if sys.stdin is None or not sys.stdin.isatty():
        yield Keys(None)
        return
    stream = sys.stdin.fileno()
    before = termios.tcgetattr(stream)
    try:
        tty.setcbreak(stream)
        yield Keys(stream)
    finally:
        termios.tcsetattr(stream, termios.TCSADRAIN, before)
