"""The time that large runs lose in each step beyond the model: unexplained, but similar from row to row.

Derived after the fact: the model leaves 3.5 to 8.7 ms unexplained in every step of the V100 runs at 1,000 GPUs and more
whose baseline is the same program on the same nodes. A row is corrected by the median of the others, never by its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from orchestrator.network.prediction.records import PublishedRun


@dataclass(frozen=True)
class HeldOut:
    """One row, corrected by the loss of the others."""

    row: PublishedRun
    others_s: float

    @property
    def images_per_s(self) -> float:
        predicted = self.row.predicted or 0.0
        return self.row.images_per_step / (self.row.images_per_step / predicted + self.others_s)

    @property
    def error_percent(self) -> float:
        return 100 * (self.images_per_s / self.row.published.value - 1)


def held_out(rows: Sequence[PublishedRun]) -> list[HeldOut]:
    """Every comparable row with the median loss of the others."""
    comparable = [row for row in rows if row.same_program and row.predicted is not None]
    return [HeldOut(row, median(r.lost_s for r in comparable if r is not row)) for row in comparable]
