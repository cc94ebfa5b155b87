"""The state of a git checkout: the commit, the changes since it, and the files of the work tree.

A checkout's configuration can name programs (hooks, filters, monitors, ways to fetch): none of them is run. git is not
run in another user's checkout.
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
# A partial clone fetches missing objects, by any program. The first variable needs git 2.44, the second works in all.
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
        """The object for provenance.json. The diff is in its own file."""
        return {"commit": self.commit, "dirty": self.dirty, "untracked": list(self.untracked)}


def describe(folder: Path) -> Checkout | None:
    """The checkout that contains `folder`; None if there is none, it is another user's, or it has no commit."""
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
    """The files below `folder` that git tracks or does not ignore, relative to it. Some may be deleted.

    A submodule or another checkout inside is one name, without its files. Raises SiteError if git fails.
    """
    said = _ask(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", undecodable="surrogateescape")
    names = dict.fromkeys(name.rstrip("/") for name in said.split("\0") if name)  # a conflict lists a name three times
    return [os.fsdecode(name.encode("utf-8", "surrogateescape")) for name in names]


def nearest(folder: Path) -> Path | None:
    """The nearest folder with a checkout, from `folder` upwards; None if there is none."""
    return next((place for place in (folder, *folder.parents) if os.path.lexists(place / ".git")), None)


def is_own(folder: Path) -> bool:
    """Whether the nearest checkout, from `folder` upwards, is the user's own."""
    place = nearest(folder)
    return place is not None and private.is_mine(place) and private.is_mine(place / ".git")


def _without_filters(folder: Path) -> list[str]:
    """The options that turn off all configured filters. Raises SiteError for a filter that they cannot turn off."""
    # Included files and the configuration of the work tree count too.
    listing = _ask(folder, "config", "--includes", "-z", "--name-only", "--get-regexp", r"^filter\.", fails=True)
    names = [name for name in listing.split("\0") if name]
    if any("=" in name for name in names):  # git would read the rest of the name as the value
        raise SiteError(f"{folder}: the configuration of this checkout has a filter whose name contains '='")
    return [word for name in names for word in ("-c", f"{name}=")]


def _ask(folder: Path, *words: str, fails: bool = False, undecodable: str = "replace") -> str:
    """The output of git. With `fails`, an error of git is accepted."""
    environment = {name: value for name, value in clean_environment().items() if name not in ELSEWHERE} | NO_FETCH
    argv = ["git", *QUIET, "-C", str(folder), *words]
    said = process.run(argv, timeout_s=GIT_TIMEOUT_S, environment=environment, undecodable=undecodable)
    return said.stdout if fails else said.check("asking git").stdout
