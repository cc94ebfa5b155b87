"""The whole lines at the end of a file that only grows."""

from __future__ import annotations

import os
from pathlib import Path

from orchestrator.base.private import open_regular


def last_lines(path: Path, largest_bytes: int) -> tuple[list[bytes], bytes]:
    """(the whole lines in the last `largest_bytes` of a regular file, what follows the last line break).

    A line that begins before these bytes is left out. Raises OSError for whatever is no regular file.
    """
    with open(open_regular(path), "rb") as file:
        start = max(0, os.fstat(file.fileno()).st_size - largest_bytes)
        file.seek(start)
        content = file.read(largest_bytes)
    *lines, rest = content.split(b"\n")
    return (lines[1:] if start else lines), rest
