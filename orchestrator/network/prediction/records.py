"""A published throughput and a published time, each beside the model's."""

from __future__ import annotations

from dataclasses import dataclass

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
