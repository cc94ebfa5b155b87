"""Text from files in one line, safe to print: it cannot move the cursor, change colours or begin another line."""

from __future__ import annotations

import re

from torusrun.orchestrator.base import private

# All characters that move a cursor, end a line, or change how a terminal shows the text beside them. A tab does not.
ACTS = re.compile(r"[\x00-\x08\x0a-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")

# What a program writes to colour its output, to move the cursor and to name the window (ECMA-48; OSC of xterm).
ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-Z\\^_`-~])")


def uncoloured(text: str) -> str:
    """`text` without the escapes of a terminal, colours among them."""
    return ESCAPES.sub("", text) if "\x1b" in text else text


def plain(text: str) -> str:
    """`text` in one line: line breaks as ' / ', tabs as spaces, other control characters escaped, as \\x1b."""
    return private.plain(" / ".join(line for line in text.splitlines() if line.strip()).replace("\t", " "))


def harmless(line: str) -> str:
    """`line` as its program wrote it; control characters other than tabs are escaped, as \\x1b."""
    return ACTS.sub(lambda act: ascii(act[0])[1:-1], line)
