"""What travels with a request: the code of a run as an archive, and folders as lists of their entries."""

from __future__ import annotations

import os
import shutil
import stat
import tarfile
import tempfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.paths import checked, home
from torusrun.orchestrator.run.code.freeze import checksum_of
from torusrun.training.files.trusted import sha256_of

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


class Packed:
    """An archive of a folder in a temporary file. A request that is repeated reads it again."""

    def __init__(self, folder: Path) -> None:
        self._file = tempfile.TemporaryFile()  # noqa: SIM115 (it is closed with this object)
        with tarfile.open(fileobj=self._file, mode="w:gz", compresslevel=1) as archive:
            for path in sorted(folder.iterdir()):
                archive.add(path, path.name, filter=_without_owner)
        self.size_bytes = self._file.tell()

    def __iter__(self) -> Iterator[bytes]:
        self._file.seek(0)
        return blocks(self._file, self.size_bytes)


def _without_owner(entry: tarfile.TarInfo) -> tarfile.TarInfo:
    entry.uid = entry.gid = 0
    entry.uname = entry.gname = ""
    return entry


def unpack(reads: IO[bytes], size_bytes: int, sha256: str, into: Path) -> None:
    """Make the folder `into` from the archive of a frozen code. Raises SiteError unless it is whole and unchanged."""
    into.mkdir(mode=0o700)
    with tempfile.TemporaryFile(dir=into.parent) as file:
        for block in blocks(reads, size_bytes):
            file.write(block)
        file.seek(0)
        try:
            with tarfile.open(fileobj=file) as archive:
                for entry in archive:
                    _unpack(archive, entry, into)
        except (tarfile.TarError, zlib.error, EOFError) as error:
            raise SiteError(f"the code arrived damaged: {error}; submit again") from None
    if (arrived := checksum_of(into)) != sha256:
        raise SiteError(f"the code arrived damaged: it has SHA-256 {arrived}, {sha256} was sent; submit again")


def _unpack(archive: tarfile.TarFile, entry: tarfile.TarInfo, into: Path) -> None:
    path = into / entry.name
    if not path.parent.resolve().is_relative_to(into.resolve()) or ".." in Path(entry.name).parts:
        raise SiteError(f"{entry.name}: this is not below the code")
    if entry.isdir():
        path.mkdir(mode=0o700)
    elif entry.issym():
        path.symlink_to(entry.linkname)
    elif source := archive.extractfile(entry):
        with path.open("xb") as target:
            shutil.copyfileobj(source, target, BLOCK_BYTES)
        path.chmod(entry.mode & 0o777)


def place() -> Path:
    """The folder that has the files of requests while they are carried out."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (checked(named) if os.path.isabs(named) else home() / ".cache") / "torusrun"


def blocks(reads: IO[bytes], size_bytes: int) -> Iterator[bytes]:
    """The next bytes of a stream, in blocks. It ends early if the stream does."""
    while size_bytes > 0 and (block := reads.read(min(BLOCK_BYTES, size_bytes))):
        size_bytes -= len(block)
        yield block


def listing(folder: Path) -> list[SentEntry]:
    """All entries below a folder, each folder before its entries. Raises OSError."""
    paths = (Path(top, name) for top, folders, files in os.walk(folder) for name in sorted(folders + files))
    return [_listed(folder, path) for path in paths]


def _listed(folder: Path, path: Path) -> SentEntry:
    name, status = path.relative_to(folder).as_posix(), path.lstat()
    mode = stat.S_IMODE(status.st_mode)
    if stat.S_ISLNK(status.st_mode):
        return SentEntry(name, "link", mode)
    if stat.S_ISDIR(status.st_mode):
        return SentEntry(name, "folder", mode)
    return SentEntry(name, "file", mode, status.st_size, sha256_of(path))
