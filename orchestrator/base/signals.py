"""The names of signals, and an end in order: by SIGTERM and SIGHUP as by ctrl-C."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDS = (signal.SIGTERM, signal.SIGHUP)


def signal_name(number: int) -> str:
    """The name of a signal: SIGKILL for 9; 'signal 35' for a real-time or unknown signal."""
    return signal.Signals(number).name if number in set(signal.Signals) else f"signal {number}"


@contextmanager
def in_order() -> Iterator[None]:
    """Let the first SIGTERM or SIGHUP in the block raise SystemExit; later signals do not disturb the end.

    A signal that this process ignores stays ignored, as SIGHUP under nohup. Only the main thread gets signals; in
    other threads nothing changes.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: signal.getsignal(number) for number in ENDS}
    before = {number: handler for number, handler in handlers.items() if handler not in (signal.SIG_IGN, None)}

    def end(number: int, frame: FrameType | None) -> None:
        for each in before:
            signal.signal(each, _nothing)
        sys.exit(128 + number)

    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _nothing(number: int, frame: FrameType | None) -> None:
    """Unlike SIG_IGN, a handler is not inherited by the programs that the end starts."""
