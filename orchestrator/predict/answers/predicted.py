"""An answer of `predict`, `records`, `scale` or `grids` as a value."""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.base.shown.curve import Curve

SCHEMA = 1


@dataclass(frozen=True)
class Predicted:
    """A record for programs, the same as lines for people, and its curves."""

    record: dict[str, Any]
    lines: list[str]
    curve: Curve | None = None

    def text(self, *, as_json: bool) -> str:
        """The answer as a verb prints it."""
        return json.dumps({"schema": SCHEMA, **self.record}, indent=1) if as_json else "\n".join(self.lines)
