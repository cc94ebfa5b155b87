"""What files say, made safe to print: nothing in it can move the cursor, change colours or look like another line."""

from __future__ import annotations

import re

BREAKS = re.compile("[\r\n\v\f\x1c-\x1e\x85\u2028\u2029]+")
# C0, DEL, C1, marks that reverse the direction of a text, and halves of characters, which no terminal can show.
UNSAFE = re.compile("[\x00-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def plain(text: str) -> str:
    """`text` in one line: line breaks as ' / ', tabs as spaces, other control characters as \\x1b and the like."""
    return UNSAFE.sub(_visible, BREAKS.sub(" / ", text.strip("\r\n")).replace("\t", " "))


def plain_lines(text: str) -> str:
    """As `plain`, line by line: for messages of several lines."""
    return "\n".join(plain(line) for line in text.split("\n"))


def _visible(found: re.Match[str]) -> str:
    number = ord(found[0])
    return f"\\x{number:02x}" if number < 0x100 else f"\\u{number:04x}"
