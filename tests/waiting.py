"""Waits for other processes, in place of sleeping for the longest possible time."""

import time
from collections.abc import Callable
from typing import Any

LEAST_S = 0.01


def until(true: Callable[[], Any], what: str, timeout_s: float = 600) -> Any:
    """Wait until `true()` is true; returns its value.

    `true` may start a program, so most of the time is left to the processes that it waits for.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        asked_s = time.monotonic()
        if value := true():
            return value
        now_s = time.monotonic()
        assert now_s < end_s, f"waited {timeout_s:g} s in vain for {what}"
        time.sleep(min(max(LEAST_S, 3 * (now_s - asked_s)), 1.0))
