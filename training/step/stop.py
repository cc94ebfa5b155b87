"""SIGTERM requests a stop at the end of the step; nothing is interrupted."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """`requested` is True once SIGTERM has arrived."""

    def __init__(self) -> None:
        self.requested = False

    @classmethod
    def on_sigterm(cls) -> StopRequest:
        """A request that handles SIGTERM in this process."""
        request = cls()
        signal.signal(signal.SIGTERM, request._note)
        return request

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True
