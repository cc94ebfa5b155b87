"""A published throughput and a published time, each beside the model's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from orchestrator.network.prediction.constants import Value

CLOSE_PERCENT = 5.0


@dataclass(frozen=True)
class PublishedRun:
    """One published throughput, and the model's from a smaller run; `predicted` is None for a baseline."""

    name: str
    who: str
    gpus: int
    published: Value
    baseline: str | None
    predicted: float | None
    images_per_step: float
    same_program: bool  # the baseline is the same program on the same nodes, over InfiniBand
    not_modelled: str
    why: str

    @property
    def error_percent(self) -> float | None:
        return None if self.predicted is None else 100 * (self.predicted / self.published.value - 1)

    @property
    def lost_s(self) -> float:
        """The time of a published step beyond the model's; 0 without a prediction."""
        found = 0.0 if self.predicted is None else self.images_per_step / self.predicted
        return self.images_per_step / self.published.value - found if found else 0.0

    @property
    def role(self) -> str:
        """baseline, close, out, or unpredicted."""
        if self.predicted is None:
            return "unpredicted" if self.why else "baseline"
        return "close" if abs(self.error_percent or 0.0) <= CLOSE_PERCENT else "out"


@dataclass(frozen=True)
class Duration:
    """One published time to train, and the time of its epochs at the predicted and at the published rate."""

    name: str
    epochs: int
    published: Value
    predicted_s: float | None
    at_published_rate_s: float

    @property
    def unexplained_s(self) -> float:
        return self.published.value - self.at_published_rate_s


@dataclass(frozen=True)
class HeldOut:
    """One row, corrected by the median loss of the others.

    Derived after the fact: the model leaves 3.5 to 8.7 ms unexplained in every step of the V100 runs at 1,000 GPUs and
    more whose baseline is the same program on the same nodes.
    """

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
