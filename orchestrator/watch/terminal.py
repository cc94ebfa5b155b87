"""How wide the terminal is that a stream leads to."""

from __future__ import annotations

import os
from typing import TextIO

USUAL_WIDTH = 80


def width(stream: TextIO) -> int | None:
    """Its columns, 80 where it does not say; None where the stream leads to no terminal. COLUMNS overrides it."""
    if not stream.isatty():
        return None
    told = os.environ.get("COLUMNS", "")
    if told.isdecimal() and len(told) < 6 and int(told) > 0:
        return int(told)
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    except (OSError, ValueError):
        return USUAL_WIDTH
