"""The usual time without waiting of a rank's newest steps.

These are so many that a short disturbance does not count.
"""

from __future__ import annotations

from collections import deque
from dataclasses import replace
from statistics import median

from torusrun.orchestrator.run.folder.node_load import RankSteps

FEWEST_STEPS = 50
FEWEST_REPORTS = 5


class RecentSteps:
    """The reports of one rank over its newest steps: at least FEWEST_STEPS and FEWEST_REPORTS."""

    def __init__(self) -> None:
        self._last_step: int | None = None
        self._reports: deque[tuple[int, float]] = deque()  # how many steps, and the time of one without waiting
        self._steps = 0

    def add(self, report: RankSteps) -> RankSteps:
        """The report, with the median of the newest ones.

        The first one of a rank does not count: it has its start.
        """
        last, self._last_step, computed_s = self._last_step, report.step, report.computed_s
        if last is None or report.step <= last:
            return report
        steps = report.step - last
        if computed_s is None:
            return report
        self._reports.append((steps, computed_s))
        self._steps += steps
        while len(self._reports) > FEWEST_REPORTS and self._steps - self._reports[0][0] >= FEWEST_STEPS:
            self._steps -= self._reports.popleft()[0]
        if self._steps < FEWEST_STEPS or len(self._reports) < FEWEST_REPORTS:
            return report
        return replace(report, recent_s=median(time_s for _, time_s in self._reports), recent_steps=self._steps)
