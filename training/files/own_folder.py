"""A user's own folder below a folder that others may write into, such as the disk of a node.

Its name is easy to guess. So a folder that a stranger made first, or a link of that name, must be refused.
"""

from __future__ import annotations

import os
import pwd
import stat
from contextlib import suppress
from pathlib import Path


def own(folder: Path | str) -> Path:
    """This user's folder below `folder`."""
    return Path(folder) / f"torusrun-{os.geteuid()}"


def make(folder: Path) -> str:
    """Make `folder` for its user alone; returns why an existing one is refused, '' if it is good. Raises OSError."""
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    found = folder.lstat()
    if stat.S_ISLNK(found.st_mode):
        return f"this is a symbolic link of {_name(found.st_uid)}"
    if not stat.S_ISDIR(found.st_mode):
        return f"this is not a folder; it belongs to {_name(found.st_uid)}"
    if found.st_uid != os.geteuid():
        return f"this folder belongs to {_name(found.st_uid)}"
    if found.st_mode & 0o077:
        return f"this folder is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _name(user: int) -> str:
    try:
        return f"user {user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return f"user {user}"
