"""The folder in the memory of a node where a run keeps copies of its state. No torch.

SHARED/torusrun-UID/memory-RUN/    of its user alone (files/trusted.py)
    0, 1                           the copies (node_state.py)
    until                          when the job of the newest attempt is over, in seconds of time.time()

`training.checkpoint.node_memory FOLDER` removes the folder of a run.
"""

from __future__ import annotations

import errno
import hashlib
import os
import shutil
import sys
from contextlib import suppress
from pathlib import Path

from torusrun.training.files.trusted import make_own_folder, open_own, open_own_folder, own_folder, put

SHARED = Path("/dev/shm")
PREFIX = "memory-"
UNTIL = "until"
MOST_BYTES = 64  # of the file `until`
UNKNOWN_S = 86400.0  # the age of a folder whose job must be over, where `until` cannot be read


def of_run(run: str, checkpoints: Path) -> Path:
    """The folder of the run whose checkpoints are in this folder."""
    digest = hashlib.sha256(f"{run}\n{checkpoints}".encode()).hexdigest()
    return own_folder(SHARED) / f"{PREFIX}{digest[:24]}"


def make(folder: Path) -> None:
    """Make the folder, or take the existing one. Raises OSError if it or its parent is not the user's alone."""
    try:
        _make(folder)
    except FileNotFoundError:  # another run has just removed the folder above, which was empty
        _make(folder)


def _make(folder: Path) -> None:
    for each in (folder.parent, folder):
        if wrong := make_own_folder(each):
            raise PermissionError(errno.EPERM, wrong, str(each))


def begin(folder: Path, until_s: float) -> None:
    """Note when the job is over. Raises OSError."""
    put(folder / UNTIL, repr(until_s).encode())


def remove(folder: Path) -> None:
    """Remove the folder of a run, if it is this user's, with all copies in it."""
    with suppress(OSError):
        os.close(open_own_folder(folder))
        shutil.rmtree(folder)  # follows no links
        if folder.parent == own_folder(folder.parent.parent):
            folder.parent.rmdir()  # unless others are in it


def remove_overdue(now_s: float) -> None:
    """Remove the folders of this user's runs whose job must be over."""
    mine = own_folder(SHARED)
    with suppress(OSError):
        os.close(open_own_folder(mine))
        for folder in mine.glob(f"{PREFIX}*"):
            if _until_s(folder) < now_s:
                remove(folder)


def _until_s(folder: Path) -> float:
    with suppress(OSError, ValueError), open(open_own(folder / UNTIL), "rb") as file:
        return float(file.read(MOST_BYTES))
    return folder.lstat().st_mtime + UNKNOWN_S


def main(arguments: list[str]) -> None:
    for name in arguments:
        remove(Path(name))


if __name__ == "__main__":
    main(sys.argv[1:])
