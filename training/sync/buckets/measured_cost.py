"""The time of an all-reduce of any size, from measurements of some sizes."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate


class MeasuredCost:
    """Seconds by bytes: straight lines between (bytes, seconds) of `table`, extended beyond its largest size.

    More bytes never take less; below the smallest size the time is that of it. Raises ValueError for an empty table.
    """

    def __init__(self, table: Sequence[tuple[float, float]]) -> None:
        if not table:
            raise ValueError("no all-reduce was measured")
        self._bytes = [size for size, _ in table]
        self._seconds = list(accumulate((time_s for _, time_s in table), max))

    def __call__(self, size_bytes: float) -> float:
        sizes, times = self._bytes, self._seconds
        if len(sizes) == 1 or size_bytes <= sizes[0]:
            return times[0]
        i = min(bisect_left(sizes, size_bytes), len(sizes) - 1)
        slope = (times[i] - times[i - 1]) / (sizes[i] - sizes[i - 1])
        return times[i] + slope * (size_bytes - sizes[i])
