"""What requests of other machines left on this login node, for `gc`: code that was sent, copies that nobody fetches."""

from __future__ import annotations

import contextlib
import os
import shutil
from collections.abc import Collection, Iterator
from functools import partial
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.remote import store
from torusrun.orchestrator.run.folder import disk
from torusrun.orchestrator.upkeep.cleaning.garbage import Garbage
from torusrun.orchestrator.upkeep.collect import PARTIAL
from torusrun.training.counted import counted


def unused_files(before_s: float) -> Iterator[Garbage]:
    """The files that no submission has used since `before_s` (of time.time()); the code of runs is in their folders."""
    files = _unused(before_s)
    if files:
        used_s = max(status.st_mtime for status in files.values())
        size_bytes = sum(status.st_blocks * disk.BLOCK_BYTES for status in files.values())
        why = f"{counted(len(files), 'file')}, sent here for submissions"
        yield Garbage("code", store.place(), size_bytes, used_s, why, partial(_remove_files, before_s))


def _unused(before_s: float) -> dict[Path, os.stat_result]:
    """The files that were not used since `before_s`, or not completed."""
    files = {}
    for path in store.place().glob("*/*"):
        with contextlib.suppress(OSError):
            status = path.lstat()
            if status.st_mtime < before_s:
                files[path] = status
    return files


def _remove_files(before_s: float) -> None:
    for path in _unused(before_s):
        path.unlink(missing_ok=True)


def copies(folders: Collection[Path], before_s: float) -> Iterator[Garbage]:
    """Copies of runs in these folders that nobody fetches, and files of broken requests, unchanged since `before_s`."""
    named = [path for folder in folders for name in (store.STAGED, PARTIAL) for path in sorted(folder.glob(f"{name}*"))]
    for path in [*named, *sorted(store.place().parent.glob(f"{store.SENT}*"))]:
        changed_s = disk.changed_s(path)  # a large copy that is being made changes deep inside
        if changed_s < before_s and private.is_mine(path):
            why = (
                "files of a request that has ended"
                if path.name.startswith(store.SENT)
                else "a copy that nobody fetches"
            )
            yield Garbage("leftover", path, disk.of_path(path), changed_s, why, partial(_remove_copy, path, before_s))


def _remove_copy(path: Path, before_s: float) -> None:
    if disk.changed_s(path) >= before_s:
        raise SiteError(f"{path}: it is being fetched")
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        raise SiteError(f"{path}: this could not be removed completely; see its permissions, and remove it by hand")
