"""The names of signals."""

from __future__ import annotations

from signal import Signals


def signal_name(number: int) -> str:
    """The name of a signal: SIGKILL for 9; 'signal 35' for a real-time or unknown one."""
    return Signals(number).name if number in set(Signals) else f"signal {number}"
