"""The messages of ranks to their wrapper: the times of their steps, and from rank 0 the activity of the training.

All ranks take each step together, so rank 0 reports for all. Nothing here waits for a disk.
"""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Mapping
from contextlib import suppress

TELL_S = 2.0


def address(token: str) -> str:
    """The address in Linux's abstract namespace; without the attempt's token no other process can take it first."""
    import hashlib
    import hmac

    return "\0torusrun-" + hmac.new(token.encode(), b"step times", hashlib.sha256).hexdigest()[:32]


class StepTimes:
    """Sends the mean and the longest time of the steps since the last message, the shares of waiting and of reading."""

    def __init__(self, rank: int, token: str) -> None:
        self._rank, self._address = rank, address(token)
        self._due_s = 0.0
        self._steps, self._spent_s, self._longest_s = 0, 0.0, 0.0
        self._waited_s: float | None = 0.0
        self._read_s = 0.0

    def add(self, step: int, steps: int, spent_s: float, waited_s: float | None, read_s: float = 0.0) -> None:
        """Add `steps` that took `spent_s`, up to `step`; `waited_s` of it was for other ranks, None if unknown.

        `read_s` of it was for the rank's share of the batches.
        """
        self._steps += steps
        self._spent_s += spent_s
        self._longest_s = max(self._longest_s, spent_s / steps)
        self._read_s += read_s
        self._waited_s = None if waited_s is None or self._waited_s is None else self._waited_s + waited_s
        if time.monotonic() >= self._due_s:
            self._due_s = time.monotonic() + TELL_S
            self._tell(step)
            self._steps, self._spent_s, self._longest_s, self._waited_s, self._read_s = 0, 0.0, 0.0, 0.0, 0.0

    def _tell(self, step: int) -> None:
        waited = None if self._waited_s is None else round(min(self._waited_s / self._spent_s, 1.0), 4)
        read = round(min(self._read_s / self._spent_s, 1.0), 4)
        mean_s, longest_s = (round(value_s, 6) for value_s in (self._spent_s / self._steps, self._longest_s))
        times = {"step_s": mean_s, "largest_s": longest_s, "waited": waited, "read": read}
        send(self._address, {"rank": self._rank, "step": step, **times})


def send(to: str, message: Mapping[str, object]) -> None:
    """Send a message to the wrapper at this address, if it listens."""
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
        out.sendto(json.dumps(message).encode(), to)


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
        """Report the step of the training, and its activity from now on."""
        now_s = time.monotonic()
        if self._address and (doing != self._doing or now_s >= self._due_s):
            self._doing, self._due_s = doing, now_s + AGAIN_S
            send(self._address, {"doing": doing, "step": step})
