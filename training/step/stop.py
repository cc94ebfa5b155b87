"""SIGTERM requests a stop at the end of the step; nothing is interrupted."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """`requested` is True once SIGTERM has arrived."""

    def __init__(self) -> None:
        self.requested = False

    def listen(self) -> None:
        """Note SIGTERM from now on. Before, it ends this process, which may wait for a rank that will never come."""
        signal.signal(signal.SIGTERM, self.note)

    def note(self, _signal: int, _frame: FrameType | None) -> None:
        """The handler of SIGTERM."""
        self.requested = True
