"""Text that is safe to print and fits: it cannot move the cursor, change colours or begin another line."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from torusrun.orchestrator.base import private

# All characters that move a cursor, end a line, or change how a terminal shows the text beside them. A tab does not.
ACTS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

# What a program writes to colour its output, to move the cursor and to name the window (ECMA-48; OSC of xterm).
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^_`-~])")
INDENT = "    "
CUT = "…"


def uncoloured(text: str) -> str:
    """`text` without the escapes of a terminal, colours among them."""
    return ESCAPES.sub("", text) if "\x1b" in text else text


def plain(text: str) -> str:
    """`text` in one line: line breaks as ' / ', tabs as spaces, other control characters escaped, as \\x1b."""
    return private.plain(" / ".join(line for line in text.splitlines() if line.strip()).replace("\t", " "))


def harmless(line: str) -> str:
    """`line` as its program wrote it; control characters other than tabs are escaped, as \\x1b."""
    return ACTS.sub(lambda act: ascii(act[0])[1:-1], line)


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
