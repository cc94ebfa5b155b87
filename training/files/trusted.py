"""Safe reading and writing: links are not followed, only regular files are read, new files appear whole.

And a user's own folder below a folder that others may write into, such as the disk of a node. Its name is easy to
guess. So a folder that a stranger made first, or a link of that name, must be refused.
"""

from __future__ import annotations

import errno
import os
import pwd
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

TYPE_CHECKING = False  # without `typing`: it takes a tenth of the start of `torusrun --help`
if TYPE_CHECKING:
    from typing import IO

SECRET = 0o600  # the mode of a file that its owner alone may read, whatever the umask
LARGEST_SPARSE_BYTES = 1 << 33
ST_BLOCK_BYTES = 512  # of st_blocks
NOT_REGULAR = "this is not a regular file"
NOT_FOLLOWED = "this is a symbolic link, and is not followed"


def open_folder(path: Path) -> int:
    """A descriptor of the folder `path`, which must not be a symbolic link. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)


def open_regular(path: Path | str, flags: int = os.O_RDONLY, mode: int = SECRET, folder: int | None = None) -> int:
    """A descriptor of the regular file `path`, below the open `folder` if that is given.

    A link at its end is not followed, and opening a FIFO does not wait. Raises OSError, with `strerror` in words, if
    `path` is not a regular file.
    """
    try:
        descriptor = os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC, mode, dir_fd=folder)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise OSError(errno.ELOOP, NOT_FOLLOWED, str(path)) from None
        if error.errno == errno.ENXIO:  # a FIFO without a reader, or a socket
            raise OSError(errno.ENXIO, NOT_REGULAR, str(path)) from None
        raise
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, NOT_REGULAR, str(path))
    return descriptor


def open_own_folder(path: Path) -> int:
    """As `open_folder`, for a folder that this user owns. Raises OSError."""
    return _own(path, open_folder(path))


def open_own(path: Path) -> int:
    """A descriptor of a regular file of this user in a folder of this user. Raises OSError."""
    folder = open_own_folder(path.parent)
    try:
        return _own(path, open_regular(path.name, folder=folder))
    finally:
        os.close(folder)


def _own(path: Path, descriptor: int) -> int:
    owner = os.fstat(descriptor).st_uid
    if owner != os.geteuid():
        os.close(descriptor)
        reason = f"belongs to user {owner} and not to user {os.geteuid()}"
        raise PermissionError(errno.EPERM, reason, str(path))
    return descriptor


def drop_access_lists(file: Path | int) -> None:
    """Remove the access lists that a new file or folder inherited: they can give rights that its mode denies.

    `file` is a path or a descriptor. Raises OSError, except on a file system without such lists.
    """
    for name in ("system.posix_acl_access", "system.posix_acl_default"):
        try:
            os.removexattr(file, name)
        except OSError as error:
            if error.errno not in (errno.ENODATA, errno.ENOTSUP):
                raise


def refuse_holes(descriptor: int) -> None:
    """Raise OSError for a huge file of holes: a stranger makes 10 TB of zeros in no time, and reading takes hours."""
    status = os.fstat(descriptor)
    if status.st_size > LARGEST_SPARSE_BYTES and status.st_blocks * ST_BLOCK_BYTES < status.st_size / 1000:
        raise OSError(errno.EFBIG, "this is a sparse file: nearly all of it was never written")


def put(path: Path, content: bytes, mode: int = SECRET) -> None:
    """Write `path` with this mode, less the umask; the content is on the disk before the file has its name.

    Raises OSError, and then leaves no file.
    """
    with unfinished(path, path.with_name(f".tmp-{path.name}"), mode) as file:
        file.write(content)
        sync(file)
    sync_folder(path.parent)


@contextmanager
def unfinished(
    path: Path | str, temporary: Path | str, mode: int = SECRET, folder: int | None = None
) -> Iterator[IO[bytes]]:
    """The new file `temporary` to write into, which becomes `path` at the end; an error within leaves no file.

    Both are names in the open `folder` if that is given.
    """
    try:
        with suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(open_regular(temporary, flags, mode, folder), "wb") as file:
            yield file
        os.replace(temporary, path, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise


def sync(file: IO[bytes]) -> None:
    """Sync the content of a file to the disk."""
    file.flush()
    os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the names in `folder` to the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def own_folder(folder: Path | str) -> Path:
    """This user's folder below `folder`."""
    return Path(folder) / f"torusrun-{os.geteuid()}"


def make_own_folder(folder: Path) -> str:
    """Make `folder` for its user alone; returns why an existing folder is refused, or ''. Raises OSError."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    status = folder.lstat()
    if stat.S_ISLNK(status.st_mode):
        return f"this is a symbolic link of {_named(status.st_uid)}"
    if not stat.S_ISDIR(status.st_mode):
        return f"this is not a folder; it belongs to {_named(status.st_uid)}"
    if status.st_uid != os.geteuid():
        return f"this folder belongs to {_named(status.st_uid)}"
    if status.st_mode & 0o077:
        return f"this folder is open to others (mode {stat.S_IMODE(status.st_mode):04o})"
    return ""


def _named(user: int) -> str:
    try:
        return f"user {user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return f"user {user}"


BLOCK_BYTES = 1 << 20


def of_stream(stream: IO[bytes], copy: IO[bytes] | None = None) -> str:
    """SHA-256 of the rest of a stream, which is also written to `copy`."""
    import hashlib  # takes a part of the start of `torusrun --help`, which needs none

    total = hashlib.sha256()
    while block := stream.read(BLOCK_BYTES):
        total.update(block)
        if copy:
            copy.write(block)
    return total.hexdigest()


def sha256_of(path: Path) -> str:
    """SHA-256 of a regular file; links are not followed. Raises OSError, also for a huge file of holes."""
    with open(open_regular(path), "rb", buffering=0) as stream:
        refuse_holes(stream.fileno())
        return of_stream(stream)
