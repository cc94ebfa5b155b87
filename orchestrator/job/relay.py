"""The progress of a program that does not write the run's metrics: read where it leaves it, and written there."""

from __future__ import annotations

import re
from pathlib import Path

from orchestrator.programs.program import Program
from orchestrator.programs.sources import Source
from orchestrator.programs.sources.jsonlines import JsonLines
from orchestrator.programs.sources.pattern import Pattern
from orchestrator.programs.sources.tensorboard import TensorBoard
from orchestrator.runs.folder import Attempt, RunFolder
from training.metrics import Metrics


class Relay:
    """Reads what a program says of its progress, and appends it to the metrics of its run."""

    def __init__(self, program: Program, run: RunFolder, attempt: Attempt) -> None:
        self._metrics = Metrics(run.metrics, attempt.number)
        self._sources: list[Source] = []
        where = program.metrics
        if where and where.file:
            self._sources.append(JsonLines(Path(where.file)))
        if where and where.tensorboard:
            events = TensorBoard(Path(where.tensorboard))
            events.new_rows()  # what earlier attempts left is in the run's metrics already
            self._sources.append(events)
        if where and where.pattern:
            self._sources.append(Pattern(attempt.rank_log(0), re.compile(where.pattern)))

    def pass_on(self, *, final: bool = False) -> None:
        """Pass on what has come since the last call; `final` when no more will come."""
        for source in self._sources:
            for row in source.new_rows(final):
                self._metrics.write("step", **row)
