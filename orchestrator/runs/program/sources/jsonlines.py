"""Progress as JSON lines: one flat object per line, as `{"step": 120, "loss": 0.53}`."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.base.json_files import parsed
from orchestrator.runs.program.sources.growing import GrowingLines
from orchestrator.runs.program.sources.rows import STEPS, LossName, Row, finite, row, whole

LONGEST_BYTES = 64 * 1024


class JsonLines:
    """The file at `path`, which need not exist yet.

    A row without `step` (or `global_step`) belongs to the previous step; a row without `t` gets the time of reading.
    """

    def __init__(self, path: Path, clock: Callable[[], float] = time.time) -> None:
        self._lines = GrowingLines(path, LONGEST_BYTES)
        self._clock = clock
        self._loss = LossName()
        self._step: int | None = None

    def new_rows(self, final: bool = False) -> list[Row]:
        """The rows written since the last call."""
        return [found for line in self._lines.new(final) if (found := self._row(line))]

    def _row(self, line: bytes) -> Row | None:
        try:
            content = parsed(line)
        except ValueError:
            return None
        if type(content) is not dict or not any(type(value) in (int, float) for value in content.values()):
            return None
        if named := next((key for key in STEPS if key in content), None):
            if (step := whole(content[named])) is None:
                return None
            self._step = step
        t = finite(content.get("t"))
        return self._loss.add_to(row(self._step, self._clock() if t is None else float(t), content))
