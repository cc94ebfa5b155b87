"""The terminal as a stream: facts about its output, single keys from its input, and its raw mode."""

from __future__ import annotations

import os
import re
import select
import signal
import stat
import sys
import termios
import time
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

USUAL_WIDTH = 80
REMARK = "yellow"  # the colour of a remark, as rich names it
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


def drawable(stream: TextIO) -> bool:
    """Whether a line on it can be redrawn, in colours."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def is_file(stream: TextIO) -> bool:
    """Whether it writes to a regular file. A pipe may lead to a terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # no descriptor
        return False


def console(*, stderr: bool = False) -> Console:
    """The console for rich; 80 columns if COLUMNS is 0, which rich would use."""
    from rich.console import Console

    made = Console(stderr=stderr)
    if made.width < 1:
        made.width = USUAL_WIDTH
    return made


def width(stream: TextIO) -> int | None:
    """Its columns, 80 if unknown; None if the stream is not a terminal. COLUMNS overrides it."""
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and len(given) < 6 and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    except (OSError, ValueError):
        return USUAL_WIDTH


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


@contextmanager
def raw(wanted: bool) -> Iterator[list[int]]:
    """In the block standard input passes every key on unchanged, if `wanted`; otherwise nothing changes.

    Yields a list that grows when the size of the window changes: the sender to the other end reads it between two
    messages, and empties it. A signal's handler must send nothing, because it may run in the middle of a message.
    """
    changed: list[int] = []
    if not wanted:
        yield changed
        return
    before = termios.tcgetattr(0)
    handler = signal.signal(signal.SIGWINCH, lambda number, frame: changed.append(number))
    try:
        tty.setraw(0, termios.TCSANOW)  # keys that were typed before are kept
        yield changed
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
