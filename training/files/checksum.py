"""SHA-256 of file contents."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import IO

from torusrun.training.files.trusted import open_regular, refuse_holes

BLOCK_BYTES = 1 << 20


def of_stream(stream: IO[bytes], copy: IO[bytes] | None = None) -> str:
    """SHA-256 of the rest of a stream, which is also written to `copy`."""
    total = hashlib.sha256()
    while block := stream.read(BLOCK_BYTES):
        total.update(block)
        if copy:
            copy.write(block)
    return total.hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a regular file; links are not followed. Raises OSError, also for a huge file of holes."""
    with open(open_regular(path), "rb", buffering=0) as stream:
        refuse_holes(stream.fileno())
        return of_stream(stream)
