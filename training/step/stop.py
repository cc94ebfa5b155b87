"""SIGTERM asks for a stop at the end of the step; nothing is interrupted."""

from __future__ import annotations

import signal
from types import FrameType


class StopRequest:
    """True in `requested` once SIGTERM has come."""

    def __init__(self) -> None:
        self.requested = False

    @classmethod
    def on_sigterm(cls) -> StopRequest:
        """Take over SIGTERM for this process."""
        request = cls()
        signal.signal(signal.SIGTERM, request._note)
        return request

    def _note(self, _signal: int, _frame: FrameType | None) -> None:
        self.requested = True
