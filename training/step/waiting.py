"""How long a rank waits for the others in its steps, by the clock of its own thread.

A rank of a training in step waits for the slowest one. So who waits least makes the others wait. What travels beside
backward counts only as far as the rank waits for it in the end; sums over the ranks within the model (batch norm over
groups) count as computing. On a GPU the thread queues work and does not wait: nothing is known there.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeVar

Item = TypeVar("Item")


class Waiting:
    """Adds up the seconds that were spent within it."""

    def __init__(self) -> None:
        self._spent_s = 0.0

    @contextmanager
    def during(self) -> Iterator[None]:
        """What is done within it is waiting."""
        began_s = time.perf_counter()
        try:
            yield
        finally:
            self._spent_s += time.perf_counter() - began_s

    def arriving(self, items: Iterator[Item]) -> Iterator[Item]:
        """The items; the time until each of them comes, and until their end, is waiting."""
        while True:
            with self.during():
                try:
                    item = next(items)
                except StopIteration:
                    return
            yield item

    def spent_s(self) -> float:
        """Since it was last asked."""
        spent_s, self._spent_s = self._spent_s, 0.0
        return spent_s
