"""A line for every step of an attempt, by rank 0: what held in it. It shows a recipe's techniques at work."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from training.reporting.appended import Appended

LINES = 200  # that are written together


class Trace:
    """Lines of JSON in the file at `path`; without one nothing is kept.

    Values are numbers, text, lists and dicts that the host knows: to read a tensor would be to wait for the device.
    """

    def __init__(self, path: Path | None) -> None:
        self.active = path is not None
        self._file = Appended(path, "the trace is") if path else None
        self._lines: list[dict[str, Any]] = []
        self._more: dict[str, Any] = {}
        self._buckets: list[dict[str, object]] = []

    def head(self, **values: Any) -> None:
        """A line about the steps that follow: at the start, and where it changes."""
        if self.active:
            self._lines.append(values)
            self._buckets = values.get("buckets", self._buckets)

    def buckets(self, buckets: list[dict[str, object]]) -> None:
        """How the gradients are reduced from the next step on: a line where that has changed."""
        if buckets != self._buckets:
            self.head(buckets=buckets)

    def add(self, **values: Any) -> None:
        """More for the line of the step that is under way."""
        if self.active:
            self._more |= values

    def step(self, **values: Any) -> None:
        """The step has been taken: its line, with what was added."""
        if self.active:
            self._lines.append({**values, **self._more})
            self._more = {}
            if len(self._lines) >= LINES:
                self.flush()

    def flush(self) -> None:
        """Write what there is: before a checkpoint, and at the end."""
        if self._file and self._lines:
            self._file.write("".join(f"{json.dumps(line)}\n" for line in self._lines).encode())
            self._lines = []
