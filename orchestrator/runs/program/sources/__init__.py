"""The sources of any program's progress: JSON lines, TensorBoard's event files, or a pattern in a log.

Every source remembers how far it has read, and skips bad content.
"""

from __future__ import annotations

from typing import Protocol

from orchestrator.runs.program.sources.jsonlines import JsonLines
from orchestrator.runs.program.sources.pattern import PatternSource
from orchestrator.runs.program.sources.rows import Row
from orchestrator.runs.program.sources.tensorboard import TensorBoard

__all__ = ["JsonLines", "PatternSource", "Row", "Source", "TensorBoard"]


class Source(Protocol):
    """One way to read progress. To skip the rows of an earlier attempt, drop the rows of the first call."""

    def new_rows(self, final: bool = False) -> list[Row]:
        """The rows written since the last call. `final`: nothing more is written, so an open last line is complete."""
        ...
