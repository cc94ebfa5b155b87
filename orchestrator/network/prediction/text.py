"""Tables as plain text."""

from __future__ import annotations

from collections.abc import Sequence


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Columns as wide as they must be: the first to the left, numbers to the right."""
    lines = [list(head), *[list(row) for row in rows]]
    widths = [max(len(line[i]) for line in lines) for i in range(len(head))]
    right = [all(_number(row[i]) for row in rows) for i in range(len(head))]
    return "\n".join(
        "  ".join(_cell(*cell) for cell in zip(line, widths, right, strict=True)).rstrip() for line in lines
    )


def _cell(text: str, width: int, right: bool) -> str:
    return text.rjust(width) if right else text.ljust(width)


def _number(text: str) -> bool:
    return not text or text[0] in "0123456789+-"


def ms(seconds: float) -> str:
    return f"{seconds * 1e3:.2f}"


def duration(seconds: float) -> str:
    """A duration in hours, minutes or seconds."""
    if seconds < 120:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
