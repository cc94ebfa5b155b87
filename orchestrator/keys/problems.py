"""Mistakes in the user's files and settings, with their places, reported together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.errors import UserError
from torusrun.training.counted import counted

MOST_TOLD = 30  # mistakes of one file in a message
SHOWN = 80  # characters of a value in a message


@dataclass(frozen=True, order=True)
class Mark:
    """A place in a source; line and column count from 1; line 0 means the whole source."""

    source: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        return f"{self.source}:{self.line}:{self.column}" if self.line else self.source


@dataclass(frozen=True, order=True)
class Problem:
    """One mistake: its place, and a message with the correction."""

    mark: Mark
    message: str

    def __str__(self) -> str:
        return printable(f"{self.mark}: {self.message}")


class SpecError(UserError):
    """All mistakes in the user's input."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = tuple(sorted(set(problems)))
        more = len(self.problems) - MOST_TOLD
        lines = [*map(str, self.problems[:MOST_TOLD]), *([f"and {counted(more, 'more mistake')}"] if more > 0 else [])]
        super().__init__("\n".join(lines))


def printable(text: str) -> str:
    """`text` on one line; characters that cannot be shown, such as control characters, are escaped."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def shown(text: str) -> str:
    """`text` in quotes, for a message; only the beginning of a long text."""
    return repr(text) if len(text) <= SHOWN else f"{text[:SHOWN]!r}... ({len(text)} characters)"
