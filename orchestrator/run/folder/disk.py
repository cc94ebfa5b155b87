"""How much room runs take on their disks. Links are not followed, and a file with several names counts once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.run.folder.run_folder import RunFolder

BLOCK_BYTES = 512  # of st_blocks, on every file system


@dataclass(frozen=True)
class Used:
    """The bytes of a run folder: all of it, and of that the checkpoints and the copy of the code."""

    total: int = 0
    checkpoints: int = 0
    code: int = 0

    def __add__(self, other: Used) -> Used:
        return Used(self.total + other.total, self.checkpoints + other.checkpoints, self.code + other.code)


def used(run: RunFolder) -> Used:
    """The room that a run takes; what cannot be read counts as nothing."""
    seen: set[tuple[int, int]] = set()
    checkpoints, code = _bytes(run.checkpoints, seen), _bytes(run.code, seen)
    return Used(_bytes(run.folder, seen) + checkpoints + code, checkpoints, code)


def of_path(path: Path) -> int:
    """The bytes that a file takes, or a folder with all that is in it."""
    return _bytes(path, set())


def changed_s(path: Path) -> float:
    """When a file, or anything in a folder, was changed last (of time.time()); 0.0 if nothing is there."""
    return max((status.st_mtime for status in _below(path)), default=0.0)


def _bytes(folder: Path, seen: set[tuple[int, int]]) -> int:
    """The bytes of the files below a folder, and of its folders, without those in `seen`, to which they are added."""
    total = 0
    for status in _below(folder):
        if (status.st_dev, status.st_ino) not in seen:
            seen.add((status.st_dev, status.st_ino))
            total += status.st_blocks * BLOCK_BYTES
    return total


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
