"""How many attempts one after the other a forecast takes, if a time limit ends each."""

from __future__ import annotations

import math


def attempts(work_s: float, limit_s: float, stop_before_s: float = 0.0) -> int:
    """The attempts for `work_s` of training; each gets the request to stop `stop_before_s` before its limit.

    The time from the start of an attempt to its first step is not known, and left out.
    """
    usable_s = limit_s - stop_before_s
    return max(math.ceil(work_s / usable_s), 1) if usable_s > 0 else 1
