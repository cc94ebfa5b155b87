"""Text that fits a terminal: how wide it is, cut, and wrapped."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator

INDENT = "    "
CUT = "…"


def wrapped(text: str, width: int | None) -> Iterator[str]:
    """`text` indented, in lines of at most `width` columns; a word longer than a line is broken."""
    line = ""
    for word in text.split(" "):
        while (
            width is not None
            and (line or word)
            and display_width(f"{INDENT}{line} {word}" if line else INDENT + word) > width
        ):
            if line:
                yield INDENT + line
                line = ""
                continue
            head = _head(word, max(width - len(INDENT), 2))
            yield INDENT + head
            word = word[len(head) :]
        line = f"{line} {word}" if line else word
    if line.strip():
        yield INDENT + line


def cut(text: str, width: int | None) -> str:
    """`text`, or its beginning and an ellipsis, in at most `width` columns."""
    if width is None or display_width(text) <= width:
        return text
    return _head(text, width - len(CUT)).rstrip() + CUT if width > 0 else ""


def _head(text: str, width: int) -> str:
    """The longest beginning of `text` that fits."""
    used = 0
    for n, char in enumerate(text):
        used += display_width(char)
        if used > width:
            return text[:n]
    return text


def display_width(text: str) -> int:
    """The columns of a terminal that `text` needs."""
    if text.isascii():
        return len(text)
    return sum(0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text)
