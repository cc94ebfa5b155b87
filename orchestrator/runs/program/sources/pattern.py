"""Progress found in a log by a pattern with named groups, as `step (?P<step>\\d+).*loss=(?P<loss>\\S+)`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

from orchestrator.runs.program.sources.growing import GrowingLines
from orchestrator.runs.program.sources.rows import Row, row, whole

LONGEST_BYTES = 4096  # of a line: the time of a pattern can grow quadratically with it, or worse
NUMBER = re.compile(r"[-+]?(?:(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?|(?:nan|inf)(?:inity)?)", re.IGNORECASE | re.ASCII)


class PatternSource:
    """The log at `path`. A match without a step belongs to the previous step; matches are not counted as steps."""

    def __init__(self, path: Path, pattern: re.Pattern[str], clock: Callable[[], float] = time.time) -> None:
        self._lines = GrowingLines(path, LONGEST_BYTES)
        self._pattern = pattern
        self._clock = clock
        self._step: int | None = None

    def new_rows(self, final: bool = False) -> list[Row]:
        """The rows written since the last call."""
        return [found for line in self._lines.new(final) if (found := self._row(line.decode("utf-8", "replace")))]

    def _row(self, line: str) -> Row | None:
        match = self._pattern.search(line)
        if not match:
            return None
        numbers = {name: value for name, text in match.groupdict().items() if (value := _number(text)) is not None}
        if not numbers:
            return None
        if "step" in numbers:
            if (step := whole(numbers["step"])) is None:
                return None
            self._step = step
        return row(self._step, self._clock(), numbers)


def _number(text: str | None) -> int | float | None:
    """The number at the beginning of a text: 0.53 of `0.53,` and 10 of `10/100`. None if there is none."""
    found = NUMBER.match(text.strip()) if text else None
    if not found:
        return None
    digits = found.group()
    return int(digits) if digits.lstrip("+-").isdigit() and len(digits) < 20 else float(digits)
