"""When checkpoints are due: after a number of steps that the recipe names, or by Daly's rule. No torch.

The rule needs the time of a save, which rank 0 measures, and the mean time between failures of the job. All ranks must
save after the same step. So rank 0 sends the next due step to the others at a checkpoint, when they wait for it anyway.
"""

from __future__ import annotations

import math
import statistics
from collections import deque

# Meta, "Revisiting Reliability in Large-Scale Machine Learning Research Clusters", arXiv 2410.21680: a job of 1,024
# GPUs fails every 7.9 hours in the mean. Failures of GPUs and nodes are taken as independent (derived).
META_GPUS, META_S = 1024, 7.9 * 3600

FIRST_STEPS = 50  # until the first checkpoint of an attempt, which also shows early that the disk can be written
MOST_STEPS = 10**9
RECENT = 9


def failure_of_ranks_s(ranks: int) -> float:
    """The mean time between failures of a job with so many ranks, by Meta's rate for as many GPUs."""
    return META_S * META_GPUS / ranks


def daly_s(save_s: float, mean_time_to_failure_s: float) -> float:
    """The interval that loses least time to saves and to lost steps: sqrt(2 C M).

    Source: Young 1974; Daly 2006, "A higher order estimate of the optimum checkpoint interval", whose first order it
    is (from memory). It holds where a save takes much less time than passes between failures.
    """
    return math.sqrt(2.0 * save_s * mean_time_to_failure_s)


class Interval:
    """Whether a checkpoint is due; all ranks call the same methods at the same steps, but `measured`."""

    def __init__(self, every_steps: int | None, mean_time_to_failure_s: float) -> None:
        self._every, self._failure_s = every_steps, mean_time_to_failure_s
        self._due_after = FIRST_STEPS
        self._saves_s: deque[float] = deque(maxlen=RECENT)
        self._began: tuple[int, float] = (0, 0.0)

    @property
    def measures(self) -> bool:
        """Whether the interval follows from measurements."""
        return self._every is None

    def begin(self, steps: int, now_s: float) -> None:
        """Begin an attempt after `steps`, at the time `now_s`."""
        self._began = steps, now_s
        self._due_after = steps + FIRST_STEPS

    def due(self, before: int, steps: int) -> bool:
        """Whether a checkpoint is due after `steps`, if none was due after `before`."""
        if self._every is not None:
            return steps // self._every > before // self._every
        return steps >= self._due_after

    def measured(self, steps: int, now_s: float, *, save_s: float, writing_s: float) -> int:
        """The steps until the next checkpoint; the training waited `save_s` for the newest.

        The last write took `writing_s`: the next does not begin sooner.
        """
        self._saves_s.append(save_s)
        first, began_s = self._began
        step_s = max(now_s - began_s, 1e-9) / max(steps - first, 1)
        interval_s = max(daly_s(statistics.median(self._saves_s), self._failure_s), writing_s)
        return min(max(round(interval_s / step_s), 1), MOST_STEPS)

    def next(self, steps: int, after: int) -> None:
        """The next checkpoint is due `after` more steps than `steps`."""
        self._due_after = steps + after
