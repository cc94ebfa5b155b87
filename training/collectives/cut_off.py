"""Errors that another rank caused: it ended, and this one found its connection closed, or met its time limit."""

from __future__ import annotations

import os
from types import TracebackType

FOREIGN = os.path.join("torch", "distributed", "")


class PeerLost(RuntimeError):
    """An exchange with another rank failed."""


def cut_off(error: BaseException) -> bool:
    """Whether an error means that another rank is gone: PeerLost, DistError, or raised inside torch.distributed.

    gloo and NCCL have no class of their own for it, so the place where an error was raised says more than its text. An
    error with a cause counts as its cause.
    """
    names = {kind.__name__ for kind in type(error).__mro__}
    if isinstance(error, PeerLost) or "DistError" in names:
        return True
    cause = error.__cause__ or error.__context__
    inside = isinstance(error, RuntimeError) and _in_distributed(error.__traceback__)
    return inside or (cause is not None and cut_off(cause))


def _in_distributed(traceback: TracebackType | None) -> bool:
    """Whether a frame of a traceback is in a function of torch.distributed."""
    while traceback:
        if FOREIGN in traceback.tb_frame.f_code.co_filename:
            return True
        traceback = traceback.tb_next
    return False
