"""What rank 0 does now, sent to its wrapper, which keeps it in a file for the supervisor.

All ranks take each step together, so rank 0 reports for all. Nothing here waits for a disk.
"""

from __future__ import annotations

import time

from torusrun.training.reporting.step_times import address, send

FIRST_STEP = "first step"  # of an attempt or of a phase of its course, which may compile, allocate and measure
STEPS = "steps"
EVALUATION = "evaluation"
CHECKPOINT = "checkpoint"
DOING = (FIRST_STEP, STEPS, EVALUATION, CHECKPOINT)
AGAIN_S = 0.5  # between reports of the same activity


class Heartbeat:
    """Reports each new activity at once, and the newest step of the same activity every AGAIN_S."""

    def __init__(self, rank: int, token: str) -> None:
        self._address = address(token) if rank == 0 else ""
        self._doing, self._due_s = "", 0.0

    def now(self, doing: str, step: int) -> None:
        """Report that the training is at `step`, and what it does from now on."""
        now_s = time.monotonic()
        if self._address and (doing != self._doing or now_s >= self._due_s):
            self._doing, self._due_s = doing, now_s + AGAIN_S
            send(self._address, {"doing": doing, "step": step})
