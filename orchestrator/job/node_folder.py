"""The folder on a node's own disk for what a user keeps there: made for its user alone, or refused.

It often lies in a folder that everybody may write into, under a name that everybody can guess. A stranger who makes it
first, or a link under that name, must not be taken for the user's own.
"""

from __future__ import annotations

import contextlib
import os
import pwd
import stat
from pathlib import Path

from orchestrator import private
from orchestrator.errors import SiteError

MEND = (
    "set 'container.stage' of the site to a folder that is the job's alone, as $TORUSRUN_SCRATCH is where the "
    "scheduler gives one, or ask for this one to be removed"
)


def make(folder: Path) -> None:
    """Make `folder`, or check the one that is there. Raises SiteError that says whose it is and what to do."""
    try:
        private.make(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        wrong = _wrong(folder.lstat())
    except OSError as error:
        raise SiteError(f"{folder}: this folder cannot be made: {error.strerror}; {MEND}") from None
    except SiteError as error:
        raise SiteError(f"{error}; {MEND}") from None
    if wrong:
        raise SiteError(f"{folder}: {wrong}, so no image is kept there; {MEND}")


def _wrong(found: os.stat_result) -> str:
    """Why what stands there is not a folder of this user alone; '' where it is."""
    if stat.S_ISLNK(found.st_mode):
        return f"this is a symbolic link of {_name(found.st_uid)}"
    if not stat.S_ISDIR(found.st_mode):
        return f"this is no folder; it belongs to {_name(found.st_uid)}"
    if found.st_uid != os.geteuid():
        return f"this folder belongs to {_name(found.st_uid)}"
    if found.st_mode & private.UMASK:
        return f"this folder is open to others (mode {stat.S_IMODE(found.st_mode):04o})"
    return ""


def _name(user: int) -> str:
    try:
        return f"user {user} ({pwd.getpwuid(user).pw_name})"
    except KeyError:
        return f"user {user}"
