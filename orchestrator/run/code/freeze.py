"""The copy of the user's code that a run keeps, so that later edits do not change the run."""

from __future__ import annotations

import hashlib
import os
import shutil
import stat
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError, UserError, explained
from torusrun.orchestrator.base.private import FOLDER, SECRET, open_regular
from torusrun.orchestrator.run.code.select import Entry, SelectedCode, select, unreadable, walk
from torusrun.orchestrator.run.folder import checkout
from torusrun.orchestrator.run.folder.checkout import Checkout
from torusrun.training.counted import counted
from torusrun.training.files.trusted import refuse_holes, sha256_of

LIMIT_BYTES = 100_000_000
LIMIT_FILES = 10_000
SHOWN = 3
BLOCK_BYTES = 1 << 20
WRITABLE = stat.S_IWUSR | stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Frozen:
    """A copy of code, and the state of its source's checkout (None for a source without git)."""

    source: Path
    checkout: Checkout | None
    files: int
    size_bytes: int
    checksum: str  # SHA-256 over names, kinds, executable bits and contents
    notes: tuple[str, ...]
    names: tuple[str, ...]  # of all its entries: the run's program may add others

    def record(self) -> dict[str, Any]:
        """The object for code.json."""
        return {
            "source": os.fsencode(self.source).decode("utf-8", "replace"),
            "commit": self.checkout.commit if self.checkout else None,
            "dirty": self.checkout.dirty if self.checkout and not self.checkout.unknown else None,
            "files": self.files,
            "bytes": self.size_bytes,
            "sha256": self.checksum,
            "notes": list(self.notes),
            "names": list(self.names),
        }


def freeze(source: Path, into: Path, leave_out: Sequence[str] = (), secret: Sequence[str] = ()) -> Frozen:
    """Copy the code in `source` to the new folder `into`, completely or not at all.

    A copy has the readers of its file, unless the umask forbids it. Copies of the files `secret` are private. The
    folders `leave_out`, relative to the source, contain the code's output and are not copied.
    Raises UserError if the code is too large or cannot be read, SiteError if the copy cannot be written.
    """
    selected = select(source, into, leave_out)
    _check_size(selected)
    state = checkout.describe(selected.source) if selected.tracked else None
    unfinished = into.with_name(f".{into.name}")
    try:
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(mode=FOLDER)
        copied_bytes = _copy(selected, unfinished, {_identity(os.stat(path)) for path in secret})
        names = names_of(unfinished)
        checksum = checksum_of(unfinished, names)
        unfinished.rename(into)
    except OSError as error:
        raise SiteError(f"{into}: the code cannot be copied here: {error.strerror}") from None
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
    return Frozen(selected.source, state, selected.files, copied_bytes, checksum, tuple(selected.notes), tuple(names))


def share(copy: Path, into: Path) -> None:
    """Make the folder `into` with the files of a `copy`, as hard links, so that the removal of a folder harms no other.

    A program that overwrites such a file would change it for all: so nobody may write to it any more. On a file system
    without hard links the files are copied. Raises SiteError if that fails.
    """
    with explained(f"{into}: the code cannot be copied here"):
        shutil.copytree(copy, into, symlinks=True, copy_function=_linked)


def copy_again(copy: Path, into: Path, names: Sequence[str] | None) -> None:
    """Make the folder `into` with the entries `names` of another run's `copy`, by default with all of them.

    What a program wrote beside them is left out. Raises SiteError if that fails.
    """
    kept = {part for name in names or () for part in (name, *map(str, Path(name).parents))}

    def left_out(folder: str, entries: list[str]) -> list[str]:
        inside = {name: os.path.relpath(os.path.join(folder, name), copy) for name in entries}
        return [name for name in entries if names is not None and inside[name] not in kept]

    with explained(f"{into}: the code cannot be copied here"):
        shutil.copytree(copy, into, symlinks=True, ignore=left_out, copy_function=_written)


def changed(copy: Path, record: Mapping[str, Any]) -> str:
    """How a copy differs from its record in code.json; '' if its entries are as they were at submit."""
    try:
        checksum = checksum_of(copy, record.get("names"))
    except FileNotFoundError as error:
        return f"{error.filename} is gone"
    except (OSError, ValueError, TypeError) as error:  # the record may be damaged
        return f"it cannot be read: {error}"
    return "" if checksum == record.get("sha256") else f"its SHA-256 is {checksum}, and was {record.get('sha256')}"


def _written(source: str, target: str) -> None:
    with open(open_regular(source), "rb") as file:
        refuse_holes(file.fileno())
    shutil.copy2(source, target)


def _linked(source: str, target: str) -> None:
    mode = stat.S_IMODE(os.stat(source).st_mode)
    if mode & WRITABLE:
        os.chmod(source, mode & ~WRITABLE)
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def chosen(source: Path, into: Path, leave_out: Sequence[str] = ()) -> SelectedCode:
    """The files that `freeze` would copy. It copies nothing. Raises UserError like `freeze`."""
    selected = select(source, into, leave_out)
    _check_size(selected)
    for entry in selected.entries:
        if entry.kind == "file":
            os.close(_opened(selected.source / entry.name))
    return selected


def names_of(folder: Path) -> list[str]:
    """Every file, link and empty folder in a copy. Raises OSError."""
    return sorted(walk(folder, folder, leave_out=lambda path: False))


def checksum_of(folder: Path, names: Sequence[str] | None = None) -> str:
    """The SHA-256 over names, kinds, executable bits and contents of these entries of a copy, by default of all.

    Raises OSError.
    """
    total = hashlib.sha256()
    for name in names_of(folder) if names is None else names:
        path = folder / name
        mode = path.lstat().st_mode
        if stat.S_ISLNK(mode):
            kind, content = "link", hashlib.sha256(os.fsencode(os.readlink(path))).hexdigest()
        elif stat.S_ISDIR(mode):
            kind, content = "folder", ""
        else:
            kind, content = "program" if mode & stat.S_IXUSR else "file", sha256_of(path)
        total.update(os.fsencode(name) + f"\0{kind}\0{content}\n".encode())
    return total.hexdigest()


def _identity(status: os.stat_result) -> tuple[int, int]:
    """The identity that a file shares with its hard links."""
    return status.st_dev, status.st_ino


def _copy(chosen: SelectedCode, target: Path, secret: Set[tuple[int, int]]) -> int:
    """Copy the entries; the number of bytes. A file that grows beyond the limit meanwhile raises UserError."""
    folders = {""}
    left_bytes = LIMIT_BYTES
    for entry in chosen.entries:
        _make_folders(target, entry.name if entry.kind == "folder" else os.path.dirname(entry.name), folders)
        if entry.kind == "link":
            os.symlink(entry.target, target / entry.name)
        elif entry.kind == "file":
            left_bytes -= _copy_file(chosen.source, entry, target / entry.name, left_bytes, secret)
    return LIMIT_BYTES - left_bytes


def _make_folders(target: Path, name: str, made: set[str]) -> None:
    if name not in made:
        _make_folders(target, os.path.dirname(name), made)
        (target / name).mkdir(mode=FOLDER)
        made.add(name)


def _copy_file(source: Path, entry: Entry, target: Path, left_bytes: int, secret: Set[tuple[int, int]]) -> int:
    """Copy a file, without write permission for others; the number of bytes."""
    descriptor = _opened(source / entry.name)
    copied = 0
    with open(descriptor, "rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        others = 0 if _identity(status) in secret else FOLDER
        mode = stat.S_IMODE(status.st_mode) & (stat.S_IRWXU | others) | SECRET
        with open(open_regular(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb", buffering=0) as copy:
            while block := file.read(min(BLOCK_BYTES, left_bytes - copied + 1)):
                copied += len(block)
                if copied > left_bytes:
                    raise UserError(f"{source / entry.name}: this file grew while it was copied, beyond the limit")
                copy.write(block)
    return copied


def _opened(path: Path) -> int:
    try:
        return open_regular(path)
    except OSError as error:
        raise unreadable(path, error.strerror or "") from None


def _check_size(chosen: SelectedCode) -> None:
    """Raise UserError if the code has more bytes or files than a run copies."""
    more = "" if chosen.complete else "more than "
    if chosen.size_bytes > LIMIT_BYTES:
        total, limit, words = chosen.size_bytes, LIMIT_BYTES, _megabytes
        sizes = Counter({entry.name: entry.size_bytes for entry in chosen.entries})
    elif chosen.files > LIMIT_FILES or not chosen.complete:
        total, limit, words = chosen.files, LIMIT_FILES, partial(counted, noun="file")
        sizes = Counter({entry.name: 1 for entry in chosen.entries})
    else:
        return
    biggest = ", ".join(f"{name} ({words(size)})" for name, size in _biggest(sizes))
    ignore = "List files that are not code in .gitignore"
    if not chosen.tracked:
        ignore = "Make the folder a git checkout and list files that are not code in its .gitignore"
    raise UserError(
        f"{chosen.source}: the code has {more}{words(total)}; a run copies at most {words(limit)}. "
        f"The largest parts: {biggest}. {ignore}, set `code` to a smaller folder, "
        "or write `code: none` if the program is in the image or at an absolute path"
    )


def _biggest(sizes: Counter[str]) -> list[tuple[str, int]]:
    """The largest entries of the source; in place of each, the deepest folder or file that holds most of it."""
    totals: Counter[str] = Counter()
    for name, size in sizes.items():
        parts = name.split(os.sep)
        for depth in range(1, len(parts) + 1):
            totals[os.sep.join(parts[:depth])] += size
    inside: dict[str, list[str]] = {}
    for name in totals:
        inside.setdefault(os.path.dirname(name), []).append(name)
    largest = sorted(inside.get("", []), key=lambda name: -totals[name])[:SHOWN]
    return [(name, totals[name]) for name in (_deepest(top, inside, totals) for top in largest)]


def _deepest(name: str, inside: dict[str, list[str]], totals: Counter[str]) -> str:
    while children := inside.get(name):
        child = max(children, key=totals.__getitem__)
        if totals[child] * 10 < totals[name] * 9:
            break
        name = child
    return name


def _megabytes(size_bytes: int) -> str:
    return f"{size_bytes / 1e6:.1f} MB" if size_bytes >= 50_000 else counted(size_bytes, "byte")
