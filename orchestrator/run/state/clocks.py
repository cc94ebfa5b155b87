"""Comparison of times by several clocks. The clock of the file system stamps the files of all machines."""

from __future__ import annotations

import os
import tempfile
import time
from pathlib import Path

KEPT_S = 60.0
SET_S = 1.0  # this machine's clock was set if it differs from the monotonic clock by more than this
_known: dict[int, tuple[float, float, float]] = {}  # by device: time.monotonic(), time.time() and the answer


def ahead_s(folder: Path) -> float:
    """Seconds by which the clock of the file system of `folder` is ahead of this machine's; 0.0 if it is unknown."""
    try:
        device, passed_s, now_s = folder.stat().st_dev, time.monotonic(), time.time()
        if device in _known:
            then_s, clock_s, seen_s = _known[device]
            since_s = passed_s - then_s
            if since_s < KEPT_S and abs(now_s - clock_s - since_s) < SET_S:
                return seen_s
        with tempfile.TemporaryFile(dir=folder, prefix=".clock-") as file:
            seen_s = os.fstat(file.fileno()).st_mtime - time.time()
    except OSError:
        return 0.0
    _known[device] = passed_s, now_s, seen_s
    return seen_s


def now_there_s(written: Path, newest_s: float, now_s: float) -> float:
    """`now_s` (of this machine's clock), converted to the clock that wrote `newest_s` at the end of `written`."""
    try:
        return newest_s + now_s + ahead_s(written.parent) - written.stat().st_mtime
    except OSError:
        return now_s
