"""A folder as a list of its entries with checksums: code on its way there, a collected run on its way here."""

from __future__ import annotations

import os
import shutil
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.remote.login_node import store
from torusrun.orchestrator.run.code.freeze import checksum_of
from torusrun.training.files.checksum import sha256_of

CODE = "code"  # the folder of the code in the folder of a call


@dataclass(frozen=True)
class SentEntry:
    """A file, folder or symbolic link below a folder; `mode` has its permissions."""

    name: str
    kind: str  # "file", "folder" or "link"
    mode: int
    size_bytes: int = 0
    sha256: str = ""
    target: str = ""


def listing(folder: Path) -> list[SentEntry]:
    """All entries below a folder, each folder before its entries. Raises OSError."""
    found = []
    for top, folders, files in os.walk(folder):
        found += [listed(folder, Path(top, name)) for name in sorted(folders + files)]
    return found


def listed(folder: Path, path: Path) -> SentEntry:
    name, status = path.relative_to(folder).as_posix(), path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return SentEntry(name, "link", mode, target=os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return SentEntry(name, "folder", mode)
    return SentEntry(name, "file", mode, status.st_size, sha256_of(path))


def assemble(code: dict[str, Any], into: Path) -> Path:
    """The folder `into`, made from files in the store. Raises SiteError unless it equals the frozen code.

    `code` has the `sha256` of the whole, and `entries` as `listing` makes them.
    """
    shutil.rmtree(into, ignore_errors=True)
    into.mkdir(mode=0o700)
    for entry in (SentEntry(**values) for values in code["entries"]):
        path = into / entry.name
        if not path.parent.resolve().is_relative_to(into.resolve()) or ".." in Path(entry.name).parts:
            raise SiteError(f"{entry.name}: this is not below the code")
        if entry.kind == "folder":
            path.mkdir(mode=0o700)
        elif entry.kind == "link":
            path.symlink_to(entry.target)
        else:
            shutil.copyfile(store.path_of(entry.sha256), path)
            path.chmod(entry.mode & 0o777)
    if (found := checksum_of(into)) != code["sha256"]:
        raise SiteError(f"the code arrived damaged: it has SHA-256 {found}, {code['sha256']} was sent; submit again")
    return into
