"""A user's folder on a node's own disk. It belongs to its user alone, or it is refused."""

from __future__ import annotations

import os
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.training.files.trusted import make_own_folder, own_folder

MEND = (
    "set '{key}' of the site to a folder that only the job uses, such as $TORUSRUN_SCRATCH if the "
    "scheduler sets it, or ask for this one to be removed"
)
STAGE, WRITABLE = "container.stage", "container.writable"  # the keys that name folders on nodes


def expanded(folder: str, key: str) -> str:
    """A site's folder with the variables of this node filled in. Raises SiteError if one is not set."""
    place = os.path.expandvars(os.path.expanduser(folder))
    if "$" in place:
        raise SiteError(f"'{key}' {folder!r} names a variable that is not set on this node")
    return place


def of_rank(folder: str, attempt: Attempt, rank: int) -> Path:
    """The folder for the files that a rank of a run writes beside its image, over all attempts. Raises SiteError."""
    mine = own_folder(expanded(folder, WRITABLE))
    make(mine, WRITABLE)
    place = mine / attempt.folder.parents[1].name / f"{rank:04d}"
    private.make(place)
    return place


def make(folder: Path, key: str = STAGE) -> None:
    """Make `folder`, or check the existing one. Raises SiteError that names its owner and says what to do."""
    mend = MEND.format(key=key)
    try:
        private.make(folder.parent)
        wrong = make_own_folder(folder)
    except OSError as error:
        raise SiteError(f"{folder}: this folder cannot be made: {error.strerror}; {mend}") from None
    except SiteError as error:
        raise SiteError(f"{error}; {mend}") from None
    if wrong:
        raise SiteError(f"{folder}: {wrong}, so nothing is kept there; {mend}")
