"""Selects the code in a folder: the files that git tracks or does not ignore, or the whole folder without git.

Never code, whatever folder is named: home folders, the folder of runs, git's own folder, compiled Python, virtual
environments, special files, and files that hold keys and logins.
"""

from __future__ import annotations

import os
import pwd
import stat
from collections.abc import Callable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.private import open_regular
from torusrun.orchestrator.keys import paths
from torusrun.orchestrator.run.folder import checkout
from torusrun.orchestrator.run.folder.without_secrets import LOGINS
from torusrun.training.counted import first_of

MOST_LOOKED_AT = 100_000  # names; a folder with more, as a home can be, is read in part
LEFT_OUT = {".git", "__pycache__"}
# Folders and files in which programs keep keys and logins; a name with a slash is the end of a path.
SECRET_NAMES = (
    ".ssh", ".gnupg", ".aws", ".azure", ".kube", ".docker", ".config/gcloud", ".config/gh", ".config/rclone", ".oci",
    ".password-store", ".local/share/keyrings", ".mozilla", ".huggingface", ".cache/huggingface/token", ".kaggle",
    ".secrets", ".secrets.*", ".*_history", *LOGINS,
)  # fmt: skip
KEY_BEGINS = (b"-----BEGIN", b"PuTTY-User-Key-File")
LARGEST_KEY_BYTES = 1 << 15


@dataclass(frozen=True)
class Entry:
    """A file, a symbolic link with its new target, or an empty folder."""

    name: str  # relative to the source
    kind: str  # "file", "link" or "folder"
    size_bytes: int = 0
    target: str = ""


@dataclass
class SelectedCode:
    """The code in a folder. `notes` are sentences about facts that the user may not expect."""

    source: Path
    entries: list[Entry] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    tracked: bool = False  # whether git listed the files
    complete: bool = True

    @property
    def files(self) -> int:
        return sum(entry.kind != "folder" for entry in self.entries)

    @property
    def size_bytes(self) -> int:
        return sum(entry.size_bytes for entry in self.entries)

    def has(self, name: str) -> bool:
        """Whether the copy has the file `name`, or a link in its path."""
        names = {name, *_folders_of(name)}
        return any(entry.name == name or (entry.kind == "link" and entry.name in names) for entry in self.entries)


def select(source: Path, into: Path | None = None, leave_out: Sequence[str] = ()) -> SelectedCode:
    """The code in the folder `source`, sorted by name, without the files and folders `leave_out` relative to it.

    It will be copied to `into`, which is two folders below that of runs. Raises UserError if the folder or a part of it
    cannot be read, or if it is no folder of code: a home folder, or a folder that holds the runs.
    """
    try:
        real = source.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise unreadable(source, getattr(error, "strerror", "") or "its links form a cycle") from None
    if not real.is_dir():
        raise UserError(f"{source}: this is not a folder: name the folder of the code, or write `code: none`")
    refuse_home(real, into.parent.parent.resolve() if into else None)
    chosen = SelectedCode(real)
    without = {os.path.normpath(name) for name in leave_out}
    names = _without_secrets(chosen, _without_what_is_no_code(_names(chosen, without), real, without))
    copied = names.keys() | {folder for name in names for folder in _folders_of(name)}
    for name in sorted(names):
        if entry := _entry(chosen, name, names[name], copied):
            chosen.entries.append(entry)
    return chosen


def _names(chosen: SelectedCode, without: Set[str]) -> dict[str, os.stat_result]:
    """Every name that may be code, with its lstat."""

    def never(folder: str) -> bool:
        return os.path.relpath(folder, chosen.source) in without or _never_code(folder)

    names = _tracked(chosen)
    statuses: dict[str, os.stat_result] = {}
    try:
        for name in names if names is not None else walk(chosen.source, chosen.source, never):
            with suppress(FileNotFoundError, NotADirectoryError):  # deleted, but still in git's index
                statuses[name] = (chosen.source / name).lstat()
            if len(statuses) > MOST_LOOKED_AT:
                chosen.complete = False
                break
    except OSError as error:
        raise unreadable(Path(error.filename or chosen.source), error.strerror or "") from None
    return statuses


def _tracked(chosen: SelectedCode) -> Iterator[str] | None:
    """The names that git lists below the source; None if git is not used or fails."""
    source = chosen.source
    if checkout.nearest(source) is None:
        return None
    if not checkout.is_own(source):
        chosen.notes.append("the checkout belongs to another user, so git does not list it: the whole folder is copied")
        return None
    try:
        listed = checkout.listed(source)
    except SiteError as error:
        chosen.notes.append(f"git did not list the files, so the whole folder is copied: {error}")
        return None
    if not listed and any(source.iterdir()):
        chosen.notes.append("git ignores this folder, so the whole folder is copied")
        return None
    chosen.tracked = True
    return _expanded(source, source, listed)


def _expanded(source: Path, folder: Path, listed: list[str]) -> Iterator[str]:
    """The names that git listed in `folder`, relative to the source, with the files of checkouts inside it."""
    for name in listed:
        path = folder / name
        if path.is_symlink() or not path.is_dir():
            yield os.path.relpath(path, source)
            continue
        try:  # a submodule
            inner = checkout.listed(path) if os.path.lexists(path / ".git") and checkout.is_own(path) else None
        except SiteError:
            inner = None
        yield from walk(path, source, _never_code) if inner is None else _expanded(source, path, inner)


def walk(folder: Path, source: Path, leave_out: Callable[[str], bool]) -> Iterator[str]:
    """Every file and link below `folder`, and every empty folder, relative to the source. Raises OSError."""
    with os.scandir(folder) as listing:
        entries = list(listing)
    if not entries and folder != source:
        yield os.path.relpath(folder, source)
    for entry in entries:
        if not entry.is_dir(follow_symlinks=False):
            yield os.path.relpath(entry.path, source)
        elif not leave_out(entry.path):
            yield from walk(Path(entry.path), source, leave_out)


def _without_secrets(chosen: SelectedCode, statuses: dict[str, os.stat_result]) -> dict[str, os.stat_result]:
    """The names without those of files that hold keys and logins, which a note lists."""
    secret = [
        name
        for name, status in sorted(statuses.items())
        if is_secret(name) or (stat.S_ISREG(status.st_mode) and is_private_key(chosen.source / name, status.st_size))
    ]
    if secret:
        chosen.notes.append(f"{first_of(secret)}: left out: keys and logins are not copied")
    return {name: statuses[name] for name in statuses.keys() - {*secret}}


def _without_what_is_no_code(
    statuses: dict[str, os.stat_result], source: Path, without: Set[str]
) -> dict[str, os.stat_result]:
    links = {name for name, status in statuses.items() if stat.S_ISLNK(status.st_mode)}

    @cache
    def never(folder: str) -> bool:
        # Git may still list files below a folder that became a link.
        return folder in without or folder in links or _never_code(os.path.join(source, folder))

    return {
        name: status
        for name, status in statuses.items()
        if not name.endswith(".pyc") and name not in without and not any(never(folder) for folder in _folders_of(name))
    }


def _folders_of(name: str) -> list[str]:
    parts = name.split(os.sep)
    return [os.sep.join(parts[:depth]) for depth in range(1, len(parts))]


def _never_code(folder: str) -> bool:
    """Whether a folder is git's or Python's own folder, a virtual environment or a run folder."""
    return (
        os.path.basename(folder) in LEFT_OUT
        or os.path.exists(os.path.join(folder, "pyvenv.cfg"))
        or all(os.path.exists(os.path.join(folder, part)) for part in ("ledger.jsonl", "attempts"))
    )


def _entry(chosen: SelectedCode, name: str, status: os.stat_result, copied: Set[str]) -> Entry | None:
    if stat.S_ISREG(status.st_mode):
        return Entry(name, "file", status.st_size)
    if stat.S_ISDIR(status.st_mode):
        return Entry(name, "folder")
    if stat.S_ISLNK(status.st_mode):
        return _link(chosen, name, copied)
    chosen.notes.append(f"{name}: left out: it is not a regular file")
    return None


def _link(chosen: SelectedCode, name: str, copied: Set[str]) -> Entry | None:
    """The entry of a link: a link to copied code points to the copy, any other keeps its target."""
    path = chosen.source / name
    real = os.path.realpath(path)
    if not os.path.exists(real):
        chosen.notes.append(f"{name}: left out: this link leads nowhere")
        return None
    inside = os.path.relpath(real, chosen.source)
    if inside == "." or inside in copied:
        return Entry(name, "link", target=os.path.relpath(real, path.parent))
    chosen.notes.append(f"{name}: a link to {real}, which is not copied: changes there reach the run")
    return Entry(name, "link", target=real)


def unreadable(path: Path, why: str) -> UserError:
    return UserError(
        f"{path}: cannot be read: {why}; make it readable, list it in .gitignore, or name another folder as `code`"
    )


def refuse_home(code: Path, runs: Path | None) -> None:
    """Raise UserError for code that is a home folder, lies above a home or the folder `runs`, or holds logins."""
    for home in _homes():
        if home == code or code in home.parents:
            raise _refused(code, "this is your home folder" if home == code else f"it holds your home folder {home}")
        if code.is_relative_to(home) and is_secret(os.path.relpath(code, home)):
            raise _refused(code, "programs keep keys and logins in it")
    if runs and (runs == code or code in runs.parents):
        raise _refused(code, f"it holds the folder of runs {runs} (`runs` of the site)")


def is_secret(name: str) -> bool:
    """Whether a path names a file or folder with secrets, or lies in such a folder."""
    parts = name.split(os.sep)
    last_words = ("/".join(parts[max(0, end - words) : end]) for end in range(1, len(parts) + 1) for words in (1, 2, 3))
    return any(fnmatchcase(words, pattern) for words in {*last_words} for pattern in SECRET_NAMES)


def is_private_key(path: Path, size_bytes: int) -> bool:
    """Whether a file begins as a private key, whatever its name."""
    if size_bytes > LARGEST_KEY_BYTES:
        return False
    with suppress(OSError), open(open_regular(path), "rb", buffering=0) as file:
        first = file.read(100).lstrip(b"\xef\xbb\xbf \t\r\n")
        return first.startswith(KEY_BEGINS) and (b"PRIVATE KEY" in first or first.startswith(KEY_BEGINS[1]))
    return False


def _homes() -> set[Path]:
    """The home folders of this user, by HOME and by the system's list of users."""
    homes = set()
    with suppress(UserError):
        homes.add(Path(os.path.realpath(paths.home())))
    with suppress(KeyError):
        homes.add(Path(os.path.realpath(pwd.getpwuid(os.getuid()).pw_dir)))
    return homes - {Path("/")}


def _refused(code: Path, why: str) -> UserError:
    return UserError(
        f"{code}: {why}, and the code of a run is copied; put the code into a folder of its own and name that "
        "(`code: FOLDER`, `--code FOLDER`), or copy nothing (`code: none`, `--code none`)"
    )
