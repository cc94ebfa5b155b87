"""The events of a training, as JSON lines appended to one file."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

from torusrun.training.reporting.appended import Appended
from torusrun.training.reporting.events import LARGEST


class Metrics:
    """Appends events of one attempt; with a `path` of None it drops them (every rank but 0).

    A line is one O_APPEND write.
    """

    def __init__(self, path: Path | None, attempt: int) -> None:
        self._file = Appended(path, "metrics are") if path else None
        self._attempt = attempt

    def write(self, event: str, **values: Any) -> None:
        """Append one event; numbers that are not finite, or beyond LARGEST, become null."""
        if self._file is None:
            return
        record = {"t": round(time.time(), 3), "attempt": self._attempt, "event": event, **values}
        line = json.dumps({key: _finite(value) for key, value in record.items()}, allow_nan=False) + "\n"
        self._file.write(line.encode())


def _finite(value: Any) -> Any:
    if isinstance(value, list):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not abs(value) < LARGEST else value
