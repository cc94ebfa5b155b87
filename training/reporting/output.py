"""Standard output and standard error that lose what cannot be written, as on a full disk, and never raise."""

from __future__ import annotations

import io
import sys
from contextlib import suppress
from typing import Any, TextIO


class _Lossy(io.FileIO):
    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        with suppress(OSError):
            while left and (written := super().write(left)):
                left = left[written:]
        return memoryview(data).nbytes


def lossy(stream: TextIO) -> TextIO:
    """The descriptor of `stream` as a stream of its own; `stream` itself if it has none, as in a notebook."""
    try:
        raw = _Lossy(stream.fileno(), "w", closefd=False)
    except (OSError, ValueError, AttributeError):
        return stream
    with suppress(OSError):
        stream.flush()
    # As Python's own streams with -u. A buffer would keep what is lost, and fail once more at the end of the process.
    return io.TextIOWrapper(raw, stream.encoding, "backslashreplace", write_through=True)


def never_fail() -> None:
    """Let no output of this process raise. For programs of ours: a user's program has its own streams."""
    sys.stdout, sys.stderr = lossy(sys.stdout), lossy(sys.stderr)


def warn(text: str) -> None:
    """Print a line to standard error in one write, if it can be written."""
    print(f"{text}\n", end="", file=lossy(sys.stderr), flush=True)
