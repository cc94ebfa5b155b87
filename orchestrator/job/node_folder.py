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

from orchestrator.base import private
from orchestrator.base.errors import SiteError
from orchestrator.runs.folder.run_folder import Attempt

MEND = (
    "set '{key}' of the site to a folder that is the job's alone, as $TORUSRUN_SCRATCH if the "
    "scheduler sets it, or have this one removed"
)
STAGE, WRITABLE = "container.stage", "container.writable"  # the keys that name folders on nodes


def own(folder: str) -> Path:
    """This user's folder below one of a site, whose variables may still be in it."""
    return Path(folder) / f"torusrun-{os.geteuid()}"


def expanded(folder: str, key: str) -> str:
    """A site's folder with the variables of this node filled in. Raises SiteError where one is not set."""
    place = os.path.expandvars(os.path.expanduser(folder))
    if "$" in place:
        raise SiteError(f"'{key}' {folder!r} names a variable that is not set on this node")
    return place


def of_rank(folder: str, attempt: Attempt, rank: int) -> Path:
    """The folder that keeps what a rank of a run writes beside its image, over all attempts. Raises SiteError."""
    mine = own(expanded(folder, WRITABLE))
    make(mine, WRITABLE)
    place = mine / attempt.folder.parents[1].name / f"{rank:04d}"
    private.make(place)
    return place


def make(folder: Path, key: str = STAGE) -> None:
    """Make `folder`, or check the one that is there. Raises SiteError that says whose it is and what to do."""
    mend = MEND.format(key=key)
    try:
        private.make(folder.parent)
        with contextlib.suppress(FileExistsError):
            folder.mkdir(mode=0o700)
        wrong = _wrong(folder.lstat())
    except OSError as error:
        raise SiteError(f"{folder}: this folder cannot be made: {error.strerror}; {mend}") from None
    except SiteError as error:
        raise SiteError(f"{error}; {mend}") from None
    if wrong:
        raise SiteError(f"{folder}: {wrong}, so nothing is kept there; {mend}")


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
