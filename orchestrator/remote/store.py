"""Files on the login node by their SHA-256, so that the same code is not sent twice; folders as lists of such files."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.paths import checked, home
from torusrun.orchestrator.run.code.freeze import checksum_of
from torusrun.training.files.checksum import sha256_of

CHECKSUM = re.compile(r"[0-9a-f]{64}")
STAGED = ".torusrun-collect-"  # begins the name of a run's copy that waits to be fetched
SENT = "sent-"  # begins the name of the folder with the files of a request, while it is carried out
HERE = "\0sent"  # in the words of a verb: the folder of its files
CODE = "code"  # in this folder: the code
BLOCK_BYTES = 1 << 20


@dataclass(frozen=True)
class SentEntry:
    """A file, folder or symbolic link below a folder; `mode` has its permissions."""

    name: str
    kind: str  # "file", "folder" or "link"
    mode: int
    size_bytes: int = 0
    sha256: str = ""
    target: str = ""


def place() -> Path:
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (checked(named) if os.path.isabs(named) else home() / ".cache") / "torusrun" / "files"


def path_of(sha256: str) -> Path:
    if not CHECKSUM.fullmatch(sha256):
        raise SiteError(f"{sha256!r} is not a SHA-256")
    return place() / sha256[:2] / sha256


def missing(sha256s: Sequence[str]) -> list[str]:
    """Those of the files that are not here. The others are used now."""
    return [sha256 for sha256 in sha256s if not _use(path_of(sha256))]


def _use(path: Path) -> bool:
    try:
        os.utime(path)
    except OSError:
        return False
    return path.is_file()


def unused(before_s: float) -> dict[Path, os.stat_result]:
    """The files that were not used since `before_s` (of time.time()), or not completed."""
    files = {}
    for path in place().glob("*/*"):
        with contextlib.suppress(OSError):
            if (status := path.lstat()).st_mtime < before_s:
                files[path] = status
    return files


def remove_unused(before_s: float) -> None:
    for path in unused(before_s):
        path.unlink(missing_ok=True)


def keep(sha256: str, size_bytes: int, reads: IO[bytes]) -> None:
    """Read a file of this size and store it, whole or not at all. Raises SiteError if it has another checksum."""
    path = path_of(sha256)
    private.make(path.parent)
    unfinished = path.with_name(f".{sha256}-{os.getpid()}")
    try:
        with open(private.open_regular(unfinished, os.O_RDWR | os.O_CREAT), "r+b") as file:
            for block in blocks(reads, size_bytes):
                file.write(block)
        if (arrived := sha256_of(unfinished)) != sha256:
            raise SiteError(f"a file arrived damaged: it has SHA-256 {arrived}, {sha256} was sent; try again")
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def blocks(reads: IO[bytes], size_bytes: int) -> Iterator[bytes]:
    """The next bytes of a stream, in blocks. It ends early if the stream does."""
    while size_bytes > 0 and (block := reads.read(min(BLOCK_BYTES, size_bytes))):
        size_bytes -= len(block)
        yield block


def listing(folder: Path) -> list[SentEntry]:
    """All entries below a folder, each folder before its entries. Raises OSError."""
    return [
        _listed(folder, Path(top, name))
        for top, folders, files in os.walk(folder)
        for name in sorted(folders + files)
    ]  # fmt: skip


def _listed(folder: Path, path: Path) -> SentEntry:
    name, status = path.relative_to(folder).as_posix(), path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return SentEntry(name, "link", mode, target=os.readlink(path))
    if stat.S_ISDIR(status.st_mode):
        return SentEntry(name, "folder", mode)
    return SentEntry(name, "file", mode, status.st_size, sha256_of(path))


def assemble(code: Mapping[str, Any], into: Path) -> None:
    """Make the folder `into` from files in the store. Raises SiteError unless it equals the frozen code.

    `code` has the `sha256` of the whole, and `entries` as `listing` makes them.
    """
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
            shutil.copyfile(path_of(entry.sha256), path)
            path.chmod(entry.mode & 0o777)
    if (arrived := checksum_of(into)) != code["sha256"]:
        raise SiteError(f"the code arrived damaged: it has SHA-256 {arrived}, {code['sha256']} was sent; submit again")
