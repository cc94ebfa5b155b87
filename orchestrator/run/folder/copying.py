"""Copies a folder with its regular files and folders, and nothing else.

It follows no link, waits for no FIFO and reads no device. Every name is looked up in the open folder above it, so that
the owner of the folder cannot replace it with a link meanwhile. Each file appears whole. A file that the target has
already stays if its content is the same, so that a copy that was interrupted continues.
"""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import stat
from collections.abc import Callable, Collection

from torusrun.orchestrator.base.private import FOLDER, NOT_REGULAR, READABLE, SECRET
from torusrun.training.files.below import Below

BLOCK_BYTES = 1 << 20
DEEPEST = 8  # levels of folders; a run folder has four
CAREFULLY = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
PART = ".torusrun-"  # begins the name of a file that is being copied

Say = Callable[[str], None]
Wanted = Callable[[str], bool]
"""Whether to copy the file at a path relative to the source, or a folder even if it stays empty."""


def copy_folder(
    source: Below, target: Below, left_behind: Collection[str], say: Say, wanted: Wanted = lambda path: True
) -> set[str]:
    """Copy the content of `source` into `target`, without names in `left_behind` and names with a leading dot.

    Returns the names of the copied files below `target`. Copies of the user's own files keep their readers. Copies of
    another user's files are private. `say` gets a sentence about everything else that is left out. Raises OSError if
    `source` cannot be read or `target` cannot be written.
    """
    os.fchmod(target.descriptor, folder_mode(os.fstat(source.descriptor)))
    copy = _Copy(source, target, left_behind, say, wanted)
    copy.content(source.descriptor, "", 1)
    return copy.files


def keep_only(folder: Below, files: Collection[str]) -> None:
    """Remove all other files below a folder, which an earlier copy left, and the folders that are empty without them.

    Raises OSError.
    """
    emptied = set()
    for name, is_folder in list(folder.entries()):
        if name not in files and (not is_folder or name in emptied):
            with contextlib.suppress(OSError) if is_folder else contextlib.nullcontext():
                folder.remove_one(name)
                emptied.add(os.path.dirname(name))


class _Copy:
    def __init__(self, source: Below, target: Below, left_behind: Collection[str], say: Say, wanted: Wanted) -> None:
        self._source, self._target = source, target
        self._left_behind, self._say, self._wanted = left_behind, say, wanted
        self.files: set[str] = set()

    def content(self, folder: int, at: str, depth: int) -> None:
        """Copy what is in an open folder, whose path below the source is `at`."""
        for name in sorted(os.listdir(folder)):
            if name in self._left_behind or name.startswith("."):
                continue
            path = f"{at}/{name}" if at else name
            try:
                descriptor = _open(name, folder)
            except OSError as error:
                self._leave_out(path, error.strerror or "")
                continue
            try:
                self._entry(descriptor, path, depth)
            finally:
                os.close(descriptor)

    def _entry(self, descriptor: int, path: str, depth: int) -> None:
        status = os.fstat(descriptor)
        if stat.S_ISREG(status.st_mode):
            if self._wanted(path):
                copy_file(descriptor, self._target, path)
                self.files.add(path)
        elif depth == DEEPEST:
            self._leave_out(path, "it is nested too deeply")
        else:
            with self._target.folder(path, folder_mode(status)):
                self.content(descriptor, path, depth + 1)
            if not self._wanted(path):
                with contextlib.suppress(OSError):
                    self._target.remove_one(path)  # unless something in it was copied

    def _leave_out(self, path: str, why: str) -> None:
        if self._wanted(path):
            self._say(f"{self._source.path / path}: left out: {why}")


def folder_mode(status: os.stat_result) -> int:
    """The mode of the copy of a folder."""
    return stat.S_IRWXU | _for_others(status)


def _for_others(status: os.stat_result) -> int:
    """The permission bits of group and others for a copy, without write permission."""
    return stat.S_IMODE(status.st_mode) & (FOLDER & ~stat.S_IRWXU) if status.st_uid == os.geteuid() else 0


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


def new_part() -> str:
    """A new unique name for a file that is being copied."""
    return f"{PART}{secrets.token_hex(8)}"


def copy_file(source: int, target: Below, name: str) -> None:
    """Copy an open file to `name`, unless that has the same content. Its holes stay holes. Raises OSError."""
    status = os.fstat(source)
    size_bytes = status.st_size
    if _is_copied(source, size_bytes, target, name):
        return
    with target.unfinished(name, new_part(), SECRET) as file:
        os.fchmod(file.fileno(), READABLE & (SECRET | _for_others(status)))
        start = 0
        while (at := written(source, start)) is not None and at < size_bytes:
            block = os.pread(source, min(BLOCK_BYTES, size_bytes - at), at)
            if not block:
                break
            file.seek(at)
            file.write(block)
            start = at + len(block)
        file.truncate(size_bytes)


def _is_copied(source: int, size_bytes: int, target: Below, name: str) -> bool:
    """Whether the file `name` has the content of an open file. Holes of both files are not read."""
    try:
        copy = target.open(name)
    except OSError:
        return False
    try:
        start = 0
        if os.fstat(copy).st_size != size_bytes:
            return False
        while (at := _either_written(source, copy, start)) is not None and at < size_bytes:
            block = os.pread(source, min(BLOCK_BYTES, size_bytes - at), at)
            if not block or block != os.pread(copy, len(block), at):
                return False
            start = at + len(block)
        return True
    except OSError:
        return False
    finally:
        os.close(copy)


def _either_written(first: int, second: int, start: int) -> int | None:
    """As `written`, of two files."""
    return min((at for file in (first, second) if (at := written(file, start)) is not None), default=None)


def written(descriptor: int, start: int) -> int | None:
    """The first offset from `start` on with data; None if only a hole follows.

    Holes of a sparse file are skipped: they can be larger than any disk.
    """
    try:
        return os.lseek(descriptor, start, os.SEEK_DATA)
    except OSError as error:
        return None if error.errno == errno.ENXIO else start  # else a file system without SEEK_DATA
