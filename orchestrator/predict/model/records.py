"""A published throughput and a published time, each compared with the model's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torusrun.orchestrator.predict.model.constants import Value
from torusrun.orchestrator.predict.model.interval import Interval

CLOSE_PERCENT = 5.0

Role = Literal["baseline", "unpredicted", "close", "off", "outside"]


@dataclass(frozen=True)
class Rate:
    """A predicted throughput in images/s, and what widens its interval most.

    No number of the row itself is in it: `sigma`, the spread of compute among the ranks, is what the other rows imply.
    """

    images_per_s: float
    interval: Interval
    sigma: float
    widened_by: str


@dataclass(frozen=True)
class PublishedRun:
    """One published throughput, and the model's from a smaller run; `predicted` is None for a baseline."""

    name: str
    who: str
    gpus: int
    published: Value
    baseline: str | None
    predicted: Rate | None
    same_program: bool  # the baseline is the same program on the same nodes, over InfiniBand
    not_modelled: str
    why: str

    @property
    def error_percent(self) -> float | None:
        return None if self.predicted is None else 100 * (self.predicted.images_per_s / self.published.value - 1)

    @property
    def role(self) -> Role:
        """`off` is farther than 5 % from the published number, which is inside the interval."""
        if self.predicted is None:
            return "unpredicted" if self.why else "baseline"
        if not self.predicted.interval.holds(self.published.value):
            return "outside"
        return "close" if abs(self.error_percent or 0.0) <= CLOSE_PERCENT else "off"


@dataclass(frozen=True)
class Duration:
    """One published time to train, and the time of its epochs at the predicted and at the published rate."""

    name: str
    epochs: int
    published: Value
    predicted_s: float | None
    interval_s: Interval | None
    at_published_rate_s: float

    @property
    def unexplained_s(self) -> float:
        return self.published.value - self.at_published_rate_s
