"""Where a stream leads to: whether that is a file, whether lines can be drawn on it, and how wide it is."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

USUAL_WIDTH = 80


def drawable(stream: TextIO) -> bool:
    """Whether a line on it can be drawn anew, in colours."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def is_file(stream: TextIO) -> bool:
    """Whether it leads to a regular file. A pipe may lead to a terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # no descriptor
        return False


def console(*, stderr: bool = False) -> Console:
    """What rich draws on; 80 columns where COLUMNS is 0, which rich would take at its word."""
    from rich.console import Console

    made = Console(stderr=stderr)
    if made.width < 1:
        made.width = USUAL_WIDTH
    return made


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
