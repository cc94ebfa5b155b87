"""How fast training goes, all ranks together."""

from __future__ import annotations

import time


class Meter:
    """`with meter:` around a step of `batch` images; evaluation and checkpoints outside do not count."""

    def __init__(self, batch: int) -> None:
        self._batch = batch
        self._recent = self._total = (0, 0.0)
        self._started_s = 0.0

    def __enter__(self) -> None:
        self._started_s = time.perf_counter()

    def __exit__(self, *_exception: object) -> None:
        spent_s = time.perf_counter() - self._started_s
        self._recent = _add(self._recent, self._batch, spent_s)
        self._total = _add(self._total, self._batch, spent_s)

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
