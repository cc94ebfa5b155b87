"""SIGTERM requests a stop at the end of the step; nothing is interrupted."""

from __future__ import annotations

from types import FrameType


class StopRequest:
    """`requested` is True once SIGTERM has arrived."""

    def __init__(self) -> None:
        self.requested = False

    def note(self, _signal: int, _frame: FrameType | None) -> None:
        """The handler of SIGTERM."""
        self.requested = True
