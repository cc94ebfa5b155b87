"""Single keys from the terminal; its settings are restored afterwards."""

from __future__ import annotations

import os
import re
import select
import sys
import termios
import time
import tty
from types import TracebackType
from typing import Any

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


class Keys:
    """The keys that a user presses, not echoed. There are none if standard input is not a terminal."""

    def __init__(self) -> None:
        self._stream: int | None = None
        self._before: list[Any] = []

    def __enter__(self) -> Keys:
        if sys.stdin is not None and sys.stdin.isatty():
            stream = sys.stdin.fileno()
            self._before = termios.tcgetattr(stream)
            self._stream = stream  # from here on, settings must be restored
            tty.setcbreak(stream)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._stream is not None:
            termios.tcsetattr(self._stream, termios.TCSADRAIN, self._before)
            self._stream = None

    @property
    def there(self) -> bool:
        return self._stream is not None

    def within(self, seconds: float) -> list[str]:
        """The names of the pressed keys; waits at most `seconds` for the first."""
        if self._stream is None:
            time.sleep(seconds)
            return []
        if not select.select([self._stream], [], [], seconds)[0]:
            return []
        pressed = os.read(self._stream, MOST_BYTES)
        if not pressed:  # the other end of the terminal is gone
            return ["quit"]
        return [NAMES[key] for key in KEY.findall(pressed) if key in NAMES]
