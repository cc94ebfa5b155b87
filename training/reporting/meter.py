"""The speed of the training, all ranks together."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager


class Meter:
    """Times the steps in `with meter.steps(lambda: images_seen):`; evaluation and checkpoints outside do not count."""

    def __init__(self) -> None:
        self._recent = self._total = (0, 0.0)
        self.last_s = 0.0  # the time of the newest steps

    @contextmanager
    def steps(self, seen: Callable[[], int]) -> Iterator[None]:
        """Time steps; `seen` returns the number of images so far."""
        before, started_s = seen(), time.perf_counter()
        yield
        images, spent_s = seen() - before, time.perf_counter() - started_s
        self.last_s = spent_s
        self._recent = _add(self._recent, images, spent_s)
        self._total = _add(self._total, images, spent_s)

    def recent_images_per_s(self) -> float:
        """The rate since the last call."""
        rate, self._recent = _rate(self._recent), (0, 0.0)
        return rate

    def images_per_s(self) -> float:
        """The rate of all steps; 0 if there was none."""
        return _rate(self._total)


def _add(sum_: tuple[int, float], images: int, spent_s: float) -> tuple[int, float]:
    return sum_[0] + images, sum_[1] + spent_s


def _rate(sum_: tuple[int, float]) -> float:
    images, spent_s = sum_
    return round(images / spent_s, 1) if spent_s else 0.0
