"""The lines at the end of a file that only grows."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.base.private import open_regular

TAIL_BYTES = 65_536


def last_lines(path: Path, largest_bytes: int) -> tuple[list[bytes], bytes]:
    """(The whole lines in the last `largest_bytes` of a regular file, the text after the last line break).

    A line that begins before these bytes is left out. Raises OSError if it is not a regular file.
    """
    with open(open_regular(path), "rb") as file:
        start = max(0, os.fstat(file.fileno()).st_size - largest_bytes)
        file.seek(start)
        content = file.read(largest_bytes)
    *lines, rest = content.split(b"\n")
    return (lines[1:] if start else lines), rest


def tail(path: Path, largest_bytes: int = TAIL_BYTES) -> list[bytes]:
    """The last lines of a file, including an unfinished one; [] if it cannot be read."""
    try:
        lines, rest = last_lines(path, largest_bytes)
    except OSError:
        return []
    return [*lines, rest] if rest else lines
