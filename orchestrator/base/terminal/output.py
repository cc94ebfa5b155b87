"""Facts about an output stream: whether it is a file, whether its lines can be redrawn, and its width."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from rich.console import Console

USUAL_WIDTH = 80


def drawable(stream: TextIO) -> bool:
    """Whether a line on it can be redrawn, in colours."""
    return stream.isatty() and os.environ.get("TERM", "dumb") not in ("dumb", "unknown")


def is_file(stream: TextIO) -> bool:
    """Whether it writes to a regular file. A pipe may lead to a terminal."""
    try:
        return stat.S_ISREG(os.fstat(stream.fileno()).st_mode)
    except (OSError, ValueError):  # no descriptor
        return False


def console(*, stderr: bool = False) -> Console:
    """The console for rich; 80 columns if COLUMNS is 0, which rich would use."""
    from rich.console import Console

    made = Console(stderr=stderr)
    if made.width < 1:
        made.width = USUAL_WIDTH
    return made


def width(stream: TextIO) -> int | None:
    """Its columns, 80 if unknown; None if the stream is not a terminal. COLUMNS overrides it."""
    if not stream.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and len(given) < 6 and int(given) > 0:
        return int(given)
    try:
        return os.get_terminal_size(stream.fileno()).columns or USUAL_WIDTH
    except (OSError, ValueError):
        return USUAL_WIDTH
