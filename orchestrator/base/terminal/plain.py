"""What files say, made safe to print in one line: it cannot move the cursor, change colours or begin another line."""

from __future__ import annotations

import re
import sys

from orchestrator.base import private

# All that can move a cursor, end a line, or change what a terminal shows of the text beside it. A tab cannot.
ACTS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """`text` in one line: line breaks as ' / ', tabs as spaces, other control characters as \\x1b and the like."""
    return private.plain(" / ".join(line for line in text.splitlines() if line.strip()).replace("\t", " "))


def say(text: str) -> None:
    """Print a remark beside what a verb prints: one line on the standard error stream."""
    print(f"torusrun: {plain(text)}", file=sys.stderr, flush=True)


def harmless(line: str) -> str:
    """`line` as its program wrote it, with control characters other than tabs written out as \\x1b and the like."""
    return ACTS.sub(lambda found: ascii(found[0])[1:-1], line)
