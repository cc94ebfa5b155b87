"""What files say, made safe to print in one line: it cannot move the cursor, change colours or begin another line."""

from __future__ import annotations

from orchestrator import private


def plain(text: str) -> str:
    """`text` in one line: line breaks as ' / ', tabs as spaces, other control characters as \\x1b and the like."""
    return private.plain(" / ".join(line for line in text.splitlines() if line.strip()).replace("\t", " "))
