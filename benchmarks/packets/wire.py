"""Simulated time, and the links: one queue for each direction, first in, first out; no packet is lost."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass

Act = Callable[[], None]


@dataclass(slots=True)
class OneWay:
    """One direction of a link. After a pause it passes `burst_s` seconds' worth of bytes at once: a token bucket.

    `free_s` is the time at which it has passed all packets so far.
    """

    s_per_byte: float
    burst_s: float = 0.0
    free_s: float = float("-inf")

    def end_s(self, arrives_s: float, size_bytes: float) -> float:
        """The time at which the last byte of a packet has passed, if its first byte arrives now."""
        self.free_s = max(arrives_s - self.burst_s, self.free_s) + size_bytes * self.s_per_byte
        return self.free_s


class Clock:
    """The simulated time, and what happens next; of two acts at the same time, the first entered is the first.

    `entered` counts all acts.
    """

    def __init__(self) -> None:
        self.now_s = 0.0
        self._next: list[tuple[float, int, Act]] = []
        self.entered = 0

    def at(self, time_s: float, act: Act) -> None:
        """Let `act` happen at `time_s`."""
        self.entered += 1
        heapq.heappush(self._next, (time_s, self.entered, act))

    def run(self) -> None:
        """Let everything happen until nothing is left."""
        while self._next:
            self.now_s, _, act = heapq.heappop(self._next)
            act()
