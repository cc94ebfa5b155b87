"""The time that a rank waits for the others in its steps, by the clock of its own thread.

In each step the ranks wait for the slowest one. So the rank that waits least makes the others wait. Communication
beside backward counts only if the rank waits for it in the end; sums over the ranks within the model (batch norm over
groups) count as computing. On a GPU the thread queues work and does not wait, so the time is unknown there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Waiting:
    """Adds up the seconds of waiting."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    @contextmanager
    def during(self) -> Iterator[None]:
        """Counts the time within it as waiting."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._spent_s += time.perf_counter() - began_s

    def arriving(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items; the time until each item, and until their end, counts as waiting."""
        while True:
            with self.during():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def spent_s(self) -> float:
        """The seconds of waiting since the last call."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s
