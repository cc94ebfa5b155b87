"""Exit codes of a training (any other is a crash), the errors behind them, and the request to stop after a step."""

from __future__ import annotations

import os
import signal
from traceback import walk_tb
from types import FrameType

EXIT_DONE = 0
EXIT_FAILED = 1  # an error of its own: a TrainingError in one line on stderr, any other with a traceback
EXIT_BAD_CONFIG = 2
EXIT_CUT_OFF = 69  # EX_UNAVAILABLE: the connection to another rank broke; that rank knows why, or is gone
EXIT_NO_CHECKPOINT = 74  # EX_IOERR: the last checkpoint, or the file that records the end, could not be written
EXIT_STOPPED = 75  # EX_TEMPFAIL: stopped on SIGTERM with a checkpoint to resume from


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
        self.requested = True


FOREIGN = os.path.join("torch", "distributed", "")


class PeerLost(RuntimeError):
    """An exchange with another rank failed."""


def cut_off(error: BaseException) -> bool:
    """Whether an error means that another rank is gone: PeerLost, DistError, or raised inside torch.distributed.

    gloo and NCCL have no class of their own for it, so the code that raised an error says more than its text. An error
    with a cause counts as its cause.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, PeerLost) or "DistError" in names:
        return True
    cause = error.__cause__ or error.__context__
    files = (frame.f_code.co_filename for frame, _ in walk_tb(error.__traceback__))
    inside = isinstance(error, RuntimeError) and any(FOREIGN in file for file in files)
    return inside or (cause is not None and cut_off(cause))
