"""A table for rich."""

from __future__ import annotations

from typing import TypeVar

from rich.text import Text

from torusrun.orchestrator.base.shown.table import Table
from torusrun.orchestrator.base.terminal.width import cut

Row = TypeVar("Row")


def drawn(table: Table[Row], width: int, head: str) -> list[Text]:
    """The titles in the style `head` and the rows in their columns' styles, each line in at most `width` columns."""
    found = []
    for line in table.styled(width):
        text, at = Text(cut("".join(part for part, _ in line).rstrip(), width)), 0
        for part, style in line:
            text.stylize(style, at, at + len(part))
            at += len(part)
        found.append(text)
    found[0].stylize(head)
    return found
