"""Exit codes of a training (anything else is a crash), and the request to stop after a step: nothing is interrupted."""

from __future__ import annotations

import signal
from types import FrameType

EXIT_DONE = 0
EXIT_FAILED = 1  # an error of its own: a TrainingError in one line on stderr, any other with a traceback
EXIT_BAD_CONFIG = 2
EXIT_CUT_OFF = 69  # EX_UNAVAILABLE: the connection to another rank broke; that rank knows why, or is gone
EXIT_NO_CHECKPOINT = 74  # EX_IOERR: the last checkpoint, or the file that records the end, could not be written
EXIT_STOPPED = 75  # EX_TEMPFAIL: stopped on SIGTERM with a checkpoint to resume from
EXIT_OTHER_NODES = 76  # the next phase needs another number of nodes; there is a checkpoint to resume from


class TrainingError(RuntimeError):
    """The training cannot continue, and its program has no defect: the message is all that a user needs."""


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
