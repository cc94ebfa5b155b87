"""Trainings of digits in a place, and their steps as they come."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.e2e.places import Place

NEVER = 1_000_000  # steps or epochs
WITHIN_S = 150.0  # the next step comes within this time after a fault, or the fault counts as a miss
ENDS_S = 300.0
LOOK_S = 0.05


def settings(words: Sequence[str]) -> list[str]:
    return [word for setting in words for word in ("--set", setting)]


def undisturbed(place: Place, words: Sequence[str]) -> Path:
    """A run without faults, to its end."""
    run = place.submit(*settings(words))
    said = place.torusrun("watch", run.name, timeout_s=3 * ENDS_S)
    assert said.returncode == 0, f"the undisturbed run failed: {said.stdout}{said.stderr}"
    return run


class Rows:
    """The steps of a run, read as they come, so that looking costs the training little."""

    def __init__(self, run: Path) -> None:
        self.run, self.steps, self.is_done = run, list[dict[str, Any]](), False
        self._path, self._read = run / "metrics.jsonl", 0

    @property
    def newest(self) -> dict[str, Any]:
        """The newest step; step 0 of attempt 1 before the first."""
        return self.steps[-1] if self.steps else {"attempt": 1, "step": 0}

    def wait(self, true: Callable[[], bool], within_s: float = WITHIN_S) -> None:
        """Wait for something that may never come true: for a while, or until the training is done."""
        until_s = time.monotonic() + within_s
        while not true() and time.monotonic() < until_s and not self.is_done:
            time.sleep(LOOK_S)
            self._look()

    def _look(self) -> None:
        with suppress(FileNotFoundError), open(self._path, "rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
            self._read += len(whole) + bool(whole)
            rows = [json.loads(line) for line in whole.splitlines() if line]
            self.steps += [row for row in rows if row["event"] == "step"]
            self.is_done = self.is_done or any(row["event"] == "done" for row in rows)
