"""The parts of this process's start, from its first instruction to its first step, in seconds."""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_parts_s: dict[str, float] = {}


def ended(part: str) -> None:
    """This part of the start ends now; it began when the part before ended, the first when the process began."""
    since_s = time.clock_gettime(time.CLOCK_BOOTTIME) - _begun_s()
    _parts_s[part] = _parts_s.get(part, 0.0) + since_s - sum(_parts_s.values())


def parts_s() -> dict[str, float]:
    """The parts that have ended, in order."""
    return {part: round(seconds, 3) for part, seconds in _parts_s.items()}


@contextmanager
def without_garbage() -> Iterator[None]:
    """A context for work that makes many lasting objects, as imports of PyTorch do, without a search for garbage.

    The search takes a tenth of the time of importing PyTorch, and of a first compiled step (measured).
    """
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def _begun_s() -> float:
    """When this process began, in seconds since the boot. Source: proc(5), field 22 of /proc/PID/stat."""
    after_name = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    return int(after_name[19]) / os.sysconf("SC_CLK_TCK")
