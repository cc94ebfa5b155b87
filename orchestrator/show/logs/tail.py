"""The last lines of a log, as they are on disk now."""

from __future__ import annotations

from pathlib import Path

from torusrun.orchestrator.base import whole_lines
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.base.whole_lines import TAIL_BYTES

LINE_BYTES = 4096


def newest_line(path: Path) -> str:
    """The newest line of a log that is not blank, safe to print; '' if there is none.

    For a progress bar, its newest state.
    """
    found = [line for line in tail(path, 10, LINE_BYTES) if line.strip()]
    return plain(found[-1]).strip() if found else ""


def drawn(line: str) -> str:
    """A line as a terminal would show it at the end: for a progress bar, its newest state."""
    if "\r" not in line:
        return line
    return next((part for part in reversed(line.split("\r")) if part.strip()), "")


def tail(path: Path, most: int, largest_bytes: int = TAIL_BYTES) -> list[str]:
    """At most `most` lines at the end of a file, from its last `largest_bytes`; [] if there are none."""
    return [drawn(line.decode(errors="replace")) for line in whole_lines.tail(path, largest_bytes)[-most:]]
