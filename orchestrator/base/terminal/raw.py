"""The user's terminal, raw while another one at the other end reads its keys, and as before afterwards."""

from __future__ import annotations

import signal
import termios
import tty
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def raw(wanted: bool) -> Iterator[list[int]]:
    """Within, standard input hands on every key as it is; where that is not wanted, nothing changes.

    Yields a list that grows when the size of the window has changed: whoever tells the other end looks into it between
    two messages, and empties it. A signal's handler must send nothing, for it may come in the middle of a message.
    """
    changed: list[int] = []
    if not wanted:
        yield changed
        return

    def change(number: int, frame: FrameType | None) -> None:
        changed.append(number)

    before, handler = termios.tcgetattr(0), signal.signal(signal.SIGWINCH, change)
    try:
        tty.setraw(0, termios.TCSANOW)  # and what was typed before is kept
        yield changed
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, handler)
