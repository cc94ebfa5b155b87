"""Copies a folder with its regular files and folders, and nothing else.

It follows no link, waits for no FIFO and reads no device. Every name is looked up in the open folder above it, so that
the owner of the folder cannot replace it with a link meanwhile.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Collection
from pathlib import Path

from orchestrator.base.private import FOLDER, NOT_REGULAR, READABLE, SECRET, open_regular

BLOCK_BYTES = 1 << 20
DEEPEST = 8  # levels of folders; a run folder has four
CAREFULLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

Say = Callable[[str], None]


def copy_folder(source: Path, target: Path, left_behind: Collection[str], say: Say) -> None:
    """Copy `source` into the existing folder `target`, without names in `left_behind` and names with a leading dot.

    Copies of the user's own files keep their readers. Copies of another user's files are private. `say` gets a sentence
    about everything else that is left out. Raises OSError if `source` cannot be read or `target` cannot be written.
    """
    descriptor = os.open(source, CAREFULLY | os.O_DIRECTORY)
    try:
        target.chmod(folder_mode(os.fstat(descriptor)))
        _copy_content(descriptor, source, target, 1, left_behind, say)
    finally:
        os.close(descriptor)


def _copy_content(folder: int, at: Path, target: Path, depth: int, left_behind: Collection[str], say: Say) -> None:
    for name in sorted(os.listdir(folder)):
        if name in left_behind or name.startswith("."):
            continue
        try:
            descriptor = _open(name, folder)
        except OSError as error:
            say(f"{at / name}: left out: {error.strerror}")
            continue
        try:
            found = os.fstat(descriptor)
            if stat.S_ISREG(found.st_mode):
                _copy_file(descriptor, target / name)
            elif depth == DEEPEST:
                say(f"{at / name}: left out: it lies too deep")
            else:
                (target / name).mkdir(mode=0o700)
                (target / name).chmod(folder_mode(found))
                _copy_content(descriptor, at / name, target / name, depth + 1, left_behind, say)
        finally:
            os.close(descriptor)


def folder_mode(found: os.stat_result) -> int:
    """The mode of the copy of a folder."""
    return stat.S_IRWXU | _for_others(found)


def _for_others(found: os.stat_result) -> int:
    """The permission bits of group and others for a copy, without write permission."""
    return stat.S_IMODE(found.st_mode) & (FOLDER & ~stat.S_IRWXU) if found.st_uid == os.geteuid() else 0


def _open(name: str, folder: int) -> int:
    """A descriptor of the regular file or folder `name` in the open folder. Raises OSError for anything else."""
    # A device is not opened: that alone can rewind a tape.
    mode = os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    if stat.S_ISLNK(mode):
        raise OSError(errno.ELOOP, "this is a symbolic link", name)
    if not _is_wanted(mode):
        raise OSError(errno.EINVAL, NOT_REGULAR, name)
    descriptor = os.open(name, CAREFULLY, dir_fd=folder)
    if not _is_wanted(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, NOT_REGULAR, name)
    return descriptor


def _is_wanted(mode: int) -> bool:
    return stat.S_ISREG(mode) or stat.S_ISDIR(mode)


def _copy_file(source: int, target: Path) -> None:
    """Copy an open file to the new file `target`. Its holes stay holes."""
    found = os.fstat(source)
    size_bytes = found.st_size
    with open(open_regular(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL), "wb") as file:
        os.fchmod(file.fileno(), READABLE & (SECRET | _for_others(found)))
        start = 0
        while (at := written(source, start)) is not None and at < size_bytes:
            block = os.pread(source, min(BLOCK_BYTES, size_bytes - at), at)
            if not block:
                break
            file.seek(at)
            file.write(block)
            start = at + len(block)
        file.truncate(size_bytes)


def written(descriptor: int, start: int) -> int | None:
    """The first offset from `start` on with data; None if there is none.

    Holes of a sparse file are skipped: they can be larger than any disk.
    """
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        return None if error.errno == errno.ENXIO else start  # else a file system without SEEK_DATA
