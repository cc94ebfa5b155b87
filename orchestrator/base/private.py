"""Create files and folders that only their user can write, and open files without following symbolic links.

Another user can put a symbolic link, a FIFO or a folder into every folder that he may write. So a folder's owner and
mode are checked before use. A file is opened without following a link or waiting for a writer.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from io import BufferedWriter
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, explained
from torusrun.orchestrator.base.strangers import objection
from torusrun.training.files.below import Below, open_below, opened
from torusrun.training.files.trusted import NOT_FOLLOWED as NOT_FOLLOWED
from torusrun.training.files.trusted import NOT_REGULAR as NOT_REGULAR
from torusrun.training.files.trusted import SECRET as SECRET
from torusrun.training.files.trusted import drop_access_lists, open_folder
from torusrun.training.files.trusted import open_regular as open_regular

UMASK = 0o077
READABLE = 0o644  # the mode of a file that the umask may leave readable for others
FOLDER = 0o755  # the mode of such a folder
ATTEMPTS = "attempts"  # the folder of a run that has a folder for each attempt, with its number
OF_HOME = {"~/.local/state": "XDG_STATE_HOME", "~/.config": "XDG_CONFIG_HOME"}  # folder: the variable that replaces it
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def is_mine(path: Path) -> bool:
    """Whether `path` itself, not the target of a link, belongs to the user of this process; False if it is missing."""
    try:
        return path.lstat().st_uid == os.geteuid()
    except (OSError, ValueError):
        return False


@contextmanager
def umask(mask: int) -> Iterator[None]:
    """Create files with this umask in the block, in all threads of the process."""
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def make(folder: Path, mask: int = UMASK, mend: str = "") -> None:
    """Make `folder` and its missing parents, with the rights that the umask `mask` leaves.

    An existing folder stays unchanged, and is checked. Raises SiteError, with what can `mend` it, unless the folder can
    be trusted.
    """
    with _makable(folder, mend):
        missing = [place for place in (folder, *folder.parents) if not place.exists()]
        for place in reversed(missing):
            with suppress(FileExistsError):  # it was made meanwhile, maybe as a link to a folder whose mode must stay
                new(place, mask)
    check(folder)


def new(folder: Path, mask: int = UMASK) -> None:
    """Make one folder with the rights that the umask `mask` leaves, whatever access list it would inherit.

    Raises OSError, also if the folder exists.
    """
    folder.mkdir(mode=0o700)
    descriptor = open_folder(folder)
    try:
        drop_access_lists(descriptor)
        inherited = os.fstat(descriptor).st_mode & stat.S_ISGID if mask != UMASK else 0
        os.fchmod(descriptor, FOLDER & ~mask | inherited)  # the process may have another umask
    finally:
        os.close(descriptor)


@contextmanager
def _makable(folder: Path, mend: str) -> Iterator[None]:
    """Turn an OSError in the block into a SiteError; for a folder below the home folder it has the remedy."""
    try:
        with explained(f"{folder}: this folder cannot be made"):
            yield
    except SiteError as error:
        variable = next((name for place, name in OF_HOME.items() if Path(place).expanduser() in folder.parents), "")
        mend = mend or (f"set {variable} to a folder that you can write" if variable else "")
        raise SiteError(f"{error}; {mend}" if mend else str(error)) from None


def check_makable(folder: Path, mend: str = "") -> None:
    """Raise SiteError if `make` would, and make nothing."""
    with _makable(folder, mend):
        existing = next(place for place in (folder, *folder.parents) if place.exists())
        if existing != folder and not existing.is_dir():
            raise OSError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if existing != folder and not os.access(existing, os.W_OK | os.X_OK):
            raise OSError(errno.EACCES, os.strerror(errno.EACCES))
    check(existing, only_above=existing != folder)


def check(folder: Path, *, only_above: bool = False) -> None:
    """Raise SiteError if a stranger could put a file into `folder`, or replace the folder.

    With `only_above`, `folder` is a parent of the folder that must be trusted.
    """
    with explained(f"{folder}: this folder cannot be used"):
        reason = objection(str(folder), only_above)
    if reason:
        raise SiteError(reason)


@contextmanager
def trusted(folder: Path) -> Iterator[Below]:
    """An open folder to write into, which a group of the user may share; it is made if it is missing.

    Raises SiteError if strangers may replace files in it, OSError.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), str(folder)) from None
    check(folder, only_above=True)
    with opened(folder) as below:
        yield below


def open_kept(path: Path) -> int:
    """A descriptor of a regular file for reading; of a file of an attempt, no link below its run's folder is followed.

    Whoever owns the run could lead a linked folder to files that only the reader may read. Raises OSError.
    """
    parts = path.parts
    for at in range(len(parts) - 3, 0, -1):
        if parts[at] == ATTEMPTS and parts[at + 1].isdecimal():
            return open_below(Path(*parts[:at]), path)
    return open_regular(path)


def read_bytes(path: Path, largest_bytes: int) -> bytes:
    """The content of a regular file, opened as by `open_kept`. Raises OSError, also for more than `largest_bytes`."""
    descriptor = open_kept(path)
    with open(descriptor, "rb") as file:
        content = file.read(largest_bytes + 1)
    if len(content) > largest_bytes:
        raise OSError(errno.EFBIG, f"this is larger than {largest_bytes} bytes", str(path))
    return content


def status(path: Path) -> os.stat_result:
    """The current status of a regular file. It is opened: over NFS a stat alone may be a minute old. Raises OSError."""
    with open(open_kept(path), "rb", buffering=0) as file:
        return os.fstat(file.fileno())


def write_bytes(path: Path, content: bytes, mode: int = SECRET) -> None:
    """Write a file with this mode, less the umask, in one step: whole or not at all. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.unlink(missing_ok=True)
        with open(open_regular(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def appended(path: Path) -> BufferedWriter:
    """A regular file to append to, which the umask may leave readable for others; made if missing. Raises OSError."""
    return open(open_regular(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, READABLE), "ab")


def write_new(path: Path, content: bytes) -> None:
    """Write a file that must not exist, whole or not at all. Raises FileExistsError, OSError."""
    with path.open("xb") as file:
        try:
            file.write(content)
            file.flush()
        except BaseException:
            path.unlink()
            raise


def plain(text: str) -> str:
    """Text that is safe to print on a terminal: control characters are escaped, so that they have no effect.

    Line breaks stay. Characters that cannot be encoded are escaped too.
    """
    shown = "".join(char if char.isprintable() or char == "\n" else ascii(char)[1:-1] for char in text)
    return shown.encode("utf-8", "backslashreplace").decode()
