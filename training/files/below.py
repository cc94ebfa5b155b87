"""Read, write and delete below an open folder, without following a link.

Another user who may write into a folder can replace its content between two looks at a path. An open folder stays the
same folder. So each name on a path is looked up in the open folder above it, and folders of other users are refused.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path, PurePosixPath

from torusrun.training.files.trusted import NOT_FOLLOWED, SECRET, drop_access_lists, open_regular, unfinished

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import IO

FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
BY_UMASK = -1  # the mode of a new folder that others may read as far as the umask leaves it
ROOT = 0


class Below:
    """What lies below an open folder. `path` is for messages alone.

    Names are relative paths. Every method raises OSError, also for a name that leads out of the folder or through a
    link. Unless it is `foreign`, a folder on the way that strangers may change is refused: that of another user, or
    with write permission for all.
    """

    def __init__(self, descriptor: int, path: Path, *, foreign: bool = False) -> None:
        self.descriptor, self.path, self._foreign = descriptor, path, foreign

    @contextmanager
    def folder(self, name: str, mode: int | None = None) -> Iterator[Below]:
        """A folder below; with a `mode`, it and the folders on the way are made with this mode if they are missing."""
        made = os.dup(self.descriptor)
        try:
            for part in _parts(name):
                upper, made = made, _open_folder(made, part, self.path / name, mode)
                os.close(upper)
                reason = "" if self._foreign else _objection(os.fstat(made))
                if reason:
                    raise PermissionError(errno.EPERM, reason, str(self.path / name))
            yield Below(made, self.path / name, foreign=self._foreign)
        finally:
            os.close(made)

    @contextmanager
    def _above(self, name: str) -> Iterator[tuple[int, str]]:
        """(the open folder that holds the last part of `name`, that part)."""
        *above, last = _parts(name)
        with self.folder("/".join(above)) if above else nullcontext(self) as folder:
            yield folder.descriptor, last

    def status(self, name: str) -> os.stat_result | None:
        """The status of a file, a folder or a link itself; None if it is missing."""
        try:
            with self._above(name) as (folder, last):
                return os.stat(last, dir_fd=folder, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def is_folder(self, name: str) -> bool:
        status = self.status(name)
        return status is not None and stat.S_ISDIR(status.st_mode)

    def open(self, name: str, flags: int = os.O_RDONLY, mode: int = SECRET) -> int:
        with self._above(name) as (folder, last):
            return open_regular(last, flags, mode, folder)

    @contextmanager
    def unfinished(self, name: str, temporary: str, mode: int = SECRET) -> Iterator[IO[bytes]]:
        """The new file `temporary` beside `name` to write into, which becomes `name` at the end."""
        with self._above(name) as (folder, last), unfinished(last, temporary, mode, folder) as file:
            yield file

    def entries(self) -> Iterator[tuple[str, bool]]:
        """(name, whether it is a folder) of all that lies below, the content of a folder before the folder."""
        for top, folders, files, _ in os.fwalk(".", topdown=False, dir_fd=self.descriptor):
            yield from (((PurePosixPath(top) / name).as_posix(), False) for name in files)
            for name in folders:
                path = (PurePosixPath(top) / name).as_posix()
                yield path, self.is_folder(path)

    def remove(self, name: str) -> None:
        """Remove a file, a link or a folder with all that is in it."""
        if self.is_folder(name):
            with self.folder(name) as inner:
                for path, _ in list(inner.entries()):
                    inner.remove_one(path)
        self.remove_one(name)

    def remove_one(self, name: str) -> None:
        """Remove a file, a link or an empty folder."""
        with self._above(name) as (folder, last):
            status = os.stat(last, dir_fd=folder, follow_symlinks=False)
            (os.rmdir if stat.S_ISDIR(status.st_mode) else os.unlink)(last, dir_fd=folder)

    def move(self, name: str, to: str) -> None:
        """Rename a file or a folder; a file or a link that has the new name is replaced."""
        with self._above(name) as (source, old), self._above(to) as (target, new):
            os.rename(old, new, src_dir_fd=source, dst_dir_fd=target)


@contextmanager
def opened(path: Path, *, foreign: bool = False) -> Iterator[Below]:
    """The folder at a path whose own links are followed: the caller trusts it, or only reads in a `foreign` folder."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield Below(descriptor, path, foreign=foreign)
    finally:
        os.close(descriptor)


def open_below(top: Path, path: Path) -> int:
    """A descriptor of the regular file `path` for reading; between the folder `top` and it no link is followed."""
    with opened(top, foreign=True) as folder:
        return folder.open(path.relative_to(top).as_posix())


def _parts(name: str) -> list[str]:
    parts = name.split("/")
    if not all(parts) or {".", ".."} & {*parts} or "\0" in name:
        raise OSError(errno.EINVAL, "this is not the name of a file below a folder", name)
    return parts


def _open_folder(above: int, name: str, path: Path, mode: int | None) -> int:
    if mode is not None:
        with suppress(FileExistsError):
            os.mkdir(name, 0o755 if mode == BY_UMASK else stat.S_IRWXU, dir_fd=above)
            made = os.open(name, FOLDER, dir_fd=above)
            if mode != BY_UMASK:
                drop_access_lists(made)
                os.fchmod(made, mode)
            return made
    try:
        return os.open(name, FOLDER, dir_fd=above)
    except NotADirectoryError:
        is_link = stat.S_ISLNK(os.stat(name, dir_fd=above, follow_symlinks=False).st_mode)
        why = NOT_FOLLOWED if is_link else "this is not a folder"
        raise NotADirectoryError(errno.ENOTDIR, why, str(path)) from None


def _objection(status: os.stat_result) -> str:
    """How strangers may change what lies in a folder; '' if they cannot."""
    if status.st_uid not in (os.geteuid(), ROOT):
        return f"this folder belongs to user {status.st_uid}"
    if status.st_mode & stat.S_IWOTH and not status.st_mode & stat.S_ISVTX:
        return "all users may write into this folder"
    return ""
