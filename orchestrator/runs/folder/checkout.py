"""What git knows of a folder: the commit, the changes since it, and the files that belong to the work tree.

A checkout's configuration can name programs (hooks, filters, monitors, ways to fetch): none of them is run. A checkout
that belongs to somebody else is not asked at all.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from orchestrator.base import private, process
from orchestrator.base.environment import clean_environment
from orchestrator.base.errors import SiteError

GIT_TIMEOUT_S = 20.0
QUIET = ("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
# A partial clone fetches what it lacks, by any program. The first variable is of git 2.44, the second of all versions.
NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
ELSEWHERE = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"}  # set in a hook: they name another checkout


@dataclass(frozen=True)
class Checkout:
    """The state of a checkout against its newest commit."""

    commit: str
    dirty: bool
    untracked: tuple[str, ...]
    diff: str

    def record(self) -> dict[str, object]:
        """What provenance.json says of it; the diff is a file of its own."""
        return {"commit": self.commit, "dirty": self.dirty, "untracked": list(self.untracked)}


def describe(folder: Path) -> Checkout | None:
    """The checkout that `folder` lies in; None where it is in none, in another user's, or in one without a commit."""
    if not is_own(folder):
        return None
    try:
        off = _without_filters(folder)
        commit = _ask(folder, *off, "rev-parse", "HEAD")
        status = _ask(folder, *off, "status", "--porcelain", "--ignore-submodules=all")
        diff = _ask(folder, *off, "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all", "HEAD")
    except SiteError:
        return None
    untracked = tuple(line[3:] for line in status.splitlines() if line.startswith("??"))
    return Checkout(commit.strip(), bool(status), untracked, diff)


def listed(folder: Path) -> list[str]:
    """The files below `folder` that git tracks or does not ignore, relative to it, some maybe deleted since.

    A submodule or another checkout inside is one name, without its files. Raises SiteError where git has no answer.
    """
    said = _ask(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", undecodable="surrogateescape")
    names = dict.fromkeys(name.rstrip("/") for name in said.split("\0") if name)  # a conflict lists a name three times
    return [os.fsdecode(name.encode("utf-8", "surrogateescape")) for name in names]


def nearest(folder: Path) -> Path | None:
    """The nearest folder from `folder` upwards that holds a checkout."""
    return next((place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), None)


def is_own(folder: Path) -> bool:
    """Whether the nearest checkout around `folder` is the user's own."""
    place = nearest(folder)
    return place is not None and private.is_mine(place) and private.is_mine(place / ".git")


def _without_filters(folder: Path) -> list[str]:
    """The options that turn off all filters, wherever they are configured. Raises SiteError for one that stays on."""
    # An included file, or one of the work tree alone, counts as much as the checkout's own.
    listing = _ask(folder, "config", "--includes", "-z", "--name-only", "--get-regexp", r"^filter\.", fails=True)
    names = [name for name in listing.split("\0") if name]
    if any("=" in name for name in names):  # git would take what follows for the value
        raise SiteError(f"{folder}: the configuration of this checkout has a filter whose name contains '='")
    return [word for name in names for word in ("-c", f"{name}=")]


def _ask(folder: Path, *words: str, fails: bool = False, undecodable: str = "replace") -> str:
    """What git says. `fails`: an error is no answer."""
    environment = {name: value for name, value in clean_environment().items() if name not in ELSEWHERE} | NO_FETCH
    argv = ["git", *QUIET, "-C", str(folder), *words]
    said = process.run(argv, timeout_s=GIT_TIMEOUT_S, environment=environment, undecodable=undecodable)
    return said.stdout if fails else said.check("asking git").stdout
