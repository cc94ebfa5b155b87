"""The user's terminal in raw mode while the terminal at the other end reads its keys; restored afterwards."""

from __future__ import annotations

import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


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

    def change(number: int, frame: FrameType | None) -> None:
        changed.append(number)

    before, handler = termios.tcgetattr(0), signal.signal(signal.SIGWINCH, change)
    try:
        tty.setraw(0, termios.TCSANOW)  # keys that were typed before are kept
        yield changed
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
