"""What sessions left on this login node: code that was sent here, and copies of runs that nobody fetches any more."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.remote.login_node import calls, store
from torusrun.orchestrator.run.folder import disk
from torusrun.orchestrator.upkeep.cleaning.garbage import Garbage
from torusrun.orchestrator.upkeep.collect import PARTIAL
from torusrun.training.counted import counted


def sent_code(before_s: float) -> Iterator[Garbage]:
    """The files of code that no submission has used since `before_s`; the code of runs is in their own folders."""
    if files := store.unused(before_s):
        used_s = max(found.st_mtime for found in files.values())
        size_bytes = sum(found.st_blocks * disk.BLOCK_BYTES for found in files.values())
        why = f"{counted(len(files), 'file')}, sent here for submissions"
        yield Garbage("code", store.place(), size_bytes, used_s, why, partial(_remove_sent, before_s))


def _remove_sent(before_s: float) -> None:
    for path in store.unused(before_s):
        path.unlink(missing_ok=True)


def copies(folders: Collection[Path], before_s: float) -> Iterator[Garbage]:
    """The copies of runs in these folders that waited to be fetched, or were cut off, unchanged since `before_s`."""
    named = [path for folder in folders for name in (calls.STAGED, PARTIAL) for path in sorted(folder.glob(f"{name}*"))]
    for path in named:
        changed_s = disk.changed_s(path)  # a large copy that is being made changes deep inside
        if changed_s < before_s and private.is_mine(path) and not _is_fetched(path):
            why = "a copy of a run that nobody fetches"
            yield Garbage("leftover", path, disk.of_path(path), changed_s, why, partial(_remove_copy, path, before_s))


def _is_fetched(copy: Path) -> bool:
    """Whether a call, which may be read again, has left this copy."""
    for left in calls.place().glob("*/left"):
        with contextlib.suppress(OSError):
            if os.readlink(left) == str(copy):
                return True
    return False


def _remove_copy(path: Path, before_s: float) -> None:
    if _is_fetched(path) or disk.changed_s(path) >= before_s:
        raise SiteError(f"{path}: it is being fetched")
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        raise SiteError(f"{path}: this could not be removed completely; see its permissions, and remove it by hand")
