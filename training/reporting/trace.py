"""A line for every step of an attempt, written by rank 0: the settings in that step. It shows a recipe's techniques."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torusrun.training.reporting.appended import Appended

LINES = 200  # written together


class Trace:
    """Writes lines of JSON to the file at `path`; without one it keeps nothing.

    Values are numbers, text, lists and dicts that the host knows: reading a tensor would wait for the device.
    """

    def __init__(self, path: Path | None) -> None:
        self.active = path is not None
        self._file = Appended(path, "the trace is") if path else None
        self._lines: list[dict[str, Any]] = []
        self._buckets: list[dict[str, object]] = []

    def head(self, **values: Any) -> None:
        """Write a line about the steps that follow: at the start, and after each change."""
        if self.active:
            self._lines.append(values)
            self._buckets = values.get("buckets", self._buckets)

    def buckets(self, buckets: list[dict[str, object]]) -> None:
        """Write a line with the buckets from the next step on, if they have changed."""
        if buckets != self._buckets:
            self.head(buckets=buckets)

    def step(self, **values: Any) -> None:
        """Write the line of the finished step."""
        if self.active:
            self._lines.append(values)
            if len(self._lines) >= LINES:
                self.flush()

    def flush(self) -> None:
        """Write all pending lines: before a checkpoint, and at the end."""
        if self._file and self._lines:
            self._file.write("".join(f"{json.dumps(line)}\n" for line in self._lines).encode())
            self._lines = []
