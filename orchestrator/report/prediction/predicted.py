"""An answer of `torusrun predict` as a value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.report.curve import Curve


@dataclass(frozen=True)
class Predicted:
    """A record for programs, the same as lines for people, and its curves."""

    record: dict[str, Any]
    lines: list[str]
    curve: Curve | None = None
