"""An answer of `predict` as a value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

SCHEMA = 1


@dataclass(frozen=True)
class Predicted:
    """A record for programs, and the same as lines for people."""

    record: dict[str, Any]
    lines: list[str]

    def text(self, *, as_json: bool) -> str:
        """The answer as a verb prints it."""
        return json.dumps({"schema": SCHEMA, **self.record}, indent=1) if as_json else "\n".join(self.lines)
