"""How much room runs take on their disks. Links are not followed, and a file with several names counts once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

BLOCK_BYTES = 512  # of st_blocks, on every file system


def of_path(path: Path) -> int:
    """The bytes that a file takes, or a folder with all that is in it; what cannot be read counts as nothing."""
    return sum({(status.st_dev, status.st_ino): status.st_blocks * BLOCK_BYTES for status in _below(path)}.values())


def changed_s(path: Path) -> float:
    """When a file, or anything in a folder, was changed last (of time.time()); 0.0 for a missing path."""
    return max((status.st_mtime for status in _below(path)), default=0.0)


def _below(folder: Path) -> Iterator[os.stat_result]:
    waiting = [str(folder)]
    while waiting:
        path = waiting.pop()
        try:
            status = os.lstat(path)
            yield status
            if stat.S_ISDIR(status.st_mode):
                with os.scandir(path) as entries:
                    waiting += [entry.path for entry in entries]
        except OSError:
            continue
