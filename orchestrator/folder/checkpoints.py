"""The checkpoints of a user's own program. Only their names and times are known."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".incomplete", "unfinished")


def finished(folder: Path) -> list[Path]:
    """The entries of a folder, newest change first, without hidden ones and those with an UNFINISHED suffix."""
    found = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and not entry.name.endswith(UNFINISHED):
                with contextlib.suppress(OSError):
                    found.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
    return [folder / name for _, name in sorted(found, reverse=True)]


def newest(folder: Path) -> Path | None:
    """The entry of `finished` that was changed last; None if there is none."""
    return next(iter(finished(folder)), None)
