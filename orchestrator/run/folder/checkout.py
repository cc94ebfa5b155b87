"""The state of a git checkout: the commit, the changes since it, and the files of the work tree.

A checkout's configuration can name programs (hooks, filters, monitors, ways to fetch): none of them is run. git is not
run in another user's checkout.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import clean_environment
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.folder.without_secrets import is_secret

GIT_TIMEOUT_S = 20.0
QUIET = ("--no-optional-locks", "--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")
# A partial clone fetches missing objects, by any program. The first variable needs git 2.44, the second works in all.
NO_FETCH = {"GIT_NO_LAZY_FETCH": "1", "GIT_ALLOW_PROTOCOL": ""}
STATUS = ("status", "--porcelain", "-z", "--ignore-submodules=all")
DIFF = ("-c", "diff.relative=false", "diff", "--no-ext-diff", "--no-textconv", "--ignore-submodules=all")
ELSEWHERE = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX"}  # set in a hook: they name another checkout


@dataclass(frozen=True)
class Checkout:
    """The state of a checkout against its newest commit. The diff begins with lines about files that it leaves out."""

    commit: str
    dirty: bool
    untracked: tuple[str, ...]
    diff: str
    unknown: str = ""  # why git did not report the changes

    def record(self) -> dict[str, object]:
        """The object for provenance.json. The diff is in its own file."""
        if self.unknown:
            return {"commit": self.commit, "dirty": None, "untracked": [], "unknown": self.unknown}
        return {"commit": self.commit, "dirty": self.dirty, "untracked": list(self.untracked)}


def describe(folder: Path, secret: Collection[str] = ()) -> Checkout | None:
    """The checkout that contains `folder`; None without a checkout of this user that has a commit.

    The diff quotes none of the files `secret`, and none whose name says that it holds secrets: it names them.
    """
    if not is_own(folder):
        return None
    try:
        off = _without_filters(folder)
        commit = _ask(folder, *off, "rev-parse", "HEAD").strip()
    except SiteError:
        return None
    try:
        status = _ask(folder, *off, *STATUS, undecodable="surrogateescape")
        changed, untracked = _names(status)
        hidden = _hidden(nearest(folder) or folder, changed, secret)
        diff = _ask(folder, *off, *DIFF, "HEAD", *_without(hidden))
    except SiteError as error:
        return Checkout(commit, False, (), "", f"git did not report the changes since the commit: {error}")
    left_out = "".join(f"# {shown_name(name)}: changed; left out, as it may hold a secret\n" for name in hidden)
    return Checkout(commit, bool(status), tuple(map(shown_name, untracked)), left_out + diff)


def _names(status: str) -> tuple[list[list[str]], list[str]]:
    """(the changed files, those that git does not track), relative to the checkout, in an answer to STATUS.

    A changed file has its name and, if it was renamed, its former name.
    """
    changed: list[list[str]] = []
    untracked: list[str] = []
    entries = filter(None, status.split("\0"))
    for entry in entries:
        kind, name = entry[:2], entry[3:]
        if kind == "??":
            untracked.append(name)
        else:
            changed.append([name, *([next(entries, name)] if "R" in kind or "C" in kind else [])])
    return changed, untracked


def _hidden(checkout: Path, changed: Sequence[Sequence[str]], secret: Collection[str]) -> list[str]:
    """The names of the changed files that must not be quoted."""
    real = {os.path.realpath(path) for path in secret}
    hides = lambda name: is_secret(name) or os.path.realpath(checkout / name) in real  # noqa: E731
    return [name for names in changed if any(map(hides, names)) for name in names]


def _without(names: Sequence[str]) -> list[str]:
    """The words after which git leaves these files out."""
    return ["--", ":(top)", *(f":(top,exclude,literal){name}" for name in names)] if names else []


def shown_name(name: str) -> str:
    """A name of a file that git reported, in one line, as UTF-8."""
    return private.plain(name.encode("utf-8", "surrogateescape").decode("utf-8", "replace")).replace("\n", "\\n")


def listed(folder: Path) -> list[str]:
    """The files below `folder` that git tracks or does not ignore, relative to it. Some may be deleted.

    A submodule or another checkout inside is one name, without its files. Raises SiteError if git fails.
    """
    output = _ask(folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", undecodable="surrogateescape")
    names = dict.fromkeys(name.rstrip("/") for name in output.split("\0") if name)  # of a conflict three equal names
    return [os.fsdecode(name.encode("utf-8", "surrogateescape")) for name in names]


def nearest(folder: Path) -> Path | None:
    """The nearest folder with a checkout, from `folder` upwards; None without a checkout."""
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
    git = process.run(argv, timeout_s=GIT_TIMEOUT_S, environment=environment, undecodable=undecodable)
    return git.stdout if fails else git.check("asking git").stdout
