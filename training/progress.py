"""How far a training is, in steps and in samples: the batch may change from step to step."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple


class Moment(NamedTuple):
    """The middle of a step, in `steps`, `samples` and `epochs`: the argument of a schedule.

    `begins` is the begin of the step, in epochs.
    """

    steps: float
    samples: float
    epochs: float
    begins: float


@dataclass(frozen=True)
class Progress:
    """The `steps` taken, and the `samples` that all ranks together have seen."""

    steps: int = 0
    samples: int = 0

    def after(self, batch: int) -> Progress:
        """The progress after one more step of `batch` samples."""
        return Progress(self.steps + 1, self.samples + batch)

    def epochs(self, epoch_samples: int) -> float:
        """Passes over a training set of `epoch_samples`."""
        return self.samples / epoch_samples

    def middle_of_step(self, batch: int, epoch_samples: int) -> Moment:
        """The middle of the next step, of `batch` samples."""
        samples = self.samples + 0.5 * batch
        return Moment(self.steps + 0.5, samples, samples / epoch_samples, self.samples / epoch_samples)

    def steps_at(self, samples: int, batch: int) -> int:
        """The steps taken when `samples` have been seen, if every later step has `batch` samples."""
        return self.steps + max(0, -(-(samples - self.samples) // batch))
