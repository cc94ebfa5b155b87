"""Files that nobody can lead elsewhere: links are not followed, only regular files are read, new files appear whole."""

from __future__ import annotations

import errno
import os
import stat
from contextlib import suppress
from pathlib import Path


def open_folder(path: Path) -> int:
    """A descriptor of the folder `path`, which may not be a symbolic link. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def open_file(name: str, folder: int) -> int:
    """A descriptor of the regular file `name` in the open `folder`. Raises OSError, also for links and pipes.

    Without O_NONBLOCK, opening a pipe would wait for someone who writes to it.
    """
    descriptor = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "not a regular file", name)
    return descriptor


def open_own_folder(path: Path) -> int:
    """As `open_folder`, for one of this user. Raises OSError."""
    return _own(path, open_folder(path))


def open_own(path: Path) -> int:
    """A descriptor of a regular file of this user in a folder of this user. Raises OSError."""
    folder = open_own_folder(path.parent)
    try:
        return _own(path, open_file(path.name, folder))
    finally:
        os.close(folder)


def _own(path: Path, descriptor: int) -> int:
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        os.close(descriptor)
        reason = f"belongs to user {owner} and not to user {os.geteuid()}"
        raise PermissionError(errno.EPERM, reason, str(path))
    return descriptor


def put(path: Path, content: bytes, mode: int = 0o600) -> None:
    """Write `path` with this mode, less the umask, on the disk before it has its name.

    Raises OSError, and then leaves nothing.
    """
    temporary = path.with_name(f".tmp-{path.name}")
    try:
        temporary.unlink(missing_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode)
        with open(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        temporary.replace(path)
        sync_folder(path.parent)
    except OSError:
        with suppress(OSError):
            temporary.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Bring the names in `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
