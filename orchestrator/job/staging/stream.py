"""A file or folder as a stream of bytes, the same on every host, and back: tar, sorted by name, read in small pieces.

A stream is written below a new folder alone: each name in it must be in a folder that the stream itself made.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
import tarfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from torusrun.orchestrator.base.errors import SiteError
from torusrun.training.files.trusted import open_regular

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

TOP = "copy"  # the name of what is staged, in a stream
BLOCK_BYTES = 1 << 20
ON_DISK_BYTES = 4096  # a file's size on a disk is a multiple of this, nearly everywhere


class Member(NamedTuple):
    """A file, folder or link as `walk` reads it."""

    name: str  # in the stream
    path: str
    status: os.stat_result
    link: str = ""  # where a symbolic link leads

    @property
    def facts(self) -> str:
        """What changes if somebody changes the file."""
        size, changed = (self.status.st_size, self.status.st_mtime_ns) if self.is_file else (0, 0)
        return f"{self.name}\0{stat.S_IFMT(self.status.st_mode)}\0{size}\0{changed}\0{self.link}\n"

    @property
    def is_file(self) -> bool:
        return stat.S_ISREG(self.status.st_mode)


def walk(path: str, name: str = TOP, top: str = "") -> Iterator[Member]:
    """The file or folder at `path`, and all in it, by name. Raises SiteError for what is neither, nor a link."""
    status, top = os.lstat(path), top or path
    link = os.readlink(path) if stat.S_ISLNK(status.st_mode) else ""
    if link and not os.path.isabs(link):
        leads = os.path.normpath(os.path.join(os.path.dirname(path), link))
        link = link if leads == top or leads.startswith(top + os.sep) else leads  # out of the copy: to the shared disk
    if not (link or stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise SiteError(f"{path}: this is no file, folder or link, and cannot be staged")
    yield Member(name, path, status, link)
    if stat.S_ISDIR(status.st_mode):
        for below in sorted(os.listdir(path)):
            yield from walk(os.path.join(path, below), f"{name}/{below}", top)


def identified(source: str) -> tuple[str, int]:
    """(the ID of a source in its present state, the bytes that a copy takes). Raises OSError, SiteError."""
    total, needed = hashlib.sha256(source.encode(errors="surrogateescape")), 0
    for member in walk(os.path.realpath(source)):
        total.update(member.facts.encode(errors="surrogateescape"))
        needed += -(-member.status.st_size // ON_DISK_BYTES) * ON_DISK_BYTES if member.is_file else ON_DISK_BYTES
    return total.hexdigest()[:16], needed


def packed(path: str) -> Iterator[bytes]:
    """The stream of the file or folder at `path`, in blocks. Raises OSError, SiteError if a file changes meanwhile."""
    block = bytearray()
    for piece in _pieces(path):
        block += piece
        while len(block) >= BLOCK_BYTES:
            yield bytes(block[:BLOCK_BYTES])
            del block[:BLOCK_BYTES]
    yield bytes(block)


def _pieces(path: str) -> Iterator[bytes]:
    for member in walk(path):
        header, mode = tarfile.TarInfo(member.name), member.status.st_mode
        header.uname = str(member.status.st_mtime_ns)  # exactly: indexes of data know their files by it
        header.mode = stat.S_IMODE(mode) & 0o777 | (0o600 if member.is_file else 0o700)
        header.type = tarfile.REGTYPE if member.is_file else tarfile.SYMTYPE if member.link else tarfile.DIRTYPE
        header.size, header.linkname = member.status.st_size if member.is_file else 0, member.link
        yield header.tobuf(tarfile.PAX_FORMAT, errors="surrogateescape")
        if member.is_file:
            yield from _content(member)
            yield bytes(-header.size % tarfile.BLOCKSIZE)
    yield bytes(2 * tarfile.BLOCKSIZE)


def _content(member: Member) -> Iterator[bytes]:
    left = member.status.st_size
    with open(open_regular(member.path), "rb", buffering=0) as file:
        while left and (piece := file.read(min(left, BLOCK_BYTES))):
            left -= len(piece)
            yield piece
        now = os.fstat(file.fileno())
    if left or (now.st_size, now.st_mtime_ns) != (member.status.st_size, member.status.st_mtime_ns):
        raise SiteError(f"{member.path}: it changed while it was staged; resume the run once it is complete")


class _Blocks(io.RawIOBase):
    """The blocks of a stream as a file."""

    def __init__(self, blocks: Iterator[bytes]) -> None:
        self._blocks, self._left = blocks, memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: WriteableBuffer) -> int:
        self._left = self._left or memoryview(next(self._blocks, b""))
        piece = self._left[: len(memoryview(buffer))]
        memoryview(buffer)[: len(piece)], self._left = piece, self._left[len(piece) :]
        return len(piece)


def unpacked(blocks: Iterator[bytes], folder: Path, read: Callable[[bytes], object]) -> None:
    """Write a stream into the new `folder`; `read` gets the content of every file. Raises OSError, SiteError."""
    made: dict[str, tarfile.TarInfo] = {}
    stream = io.BufferedReader(_Blocks(blocks), BLOCK_BYTES)
    try:
        with tarfile.open(fileobj=stream, mode="r|", bufsize=BLOCK_BYTES, errors="surrogateescape") as archive:
            for member in archive:
                _write(archive, member, folder, made, read)
    except (tarfile.TarError, ValueError) as error:
        raise SiteError(f"what was sent cannot be unpacked: {error}") from None
    while stream.read(BLOCK_BYTES):  # to its end, for its checksum
        pass
    for name in reversed(made):  # a folder's own time changes with each file in it
        os.utime(folder / name, ns=_times_ns(made[name]))
        os.chmod(folder / name, made[name].mode & 0o777)


def _write(
    archive: tarfile.TarFile,
    member: tarfile.TarInfo,
    folder: Path,
    made: dict[str, tarfile.TarInfo],
    read: Callable[[bytes], object],
) -> None:
    above, _, last = member.name.rpartition("/")
    if last in ("", ".", "..") or (above not in made and member.name != TOP):
        raise SiteError(f"a name in the stream leads elsewhere: {member.name!r}")
    path = folder / member.name
    if member.isdir():
        path.mkdir(mode=0o700)
        made[member.name] = member
    elif member.issym():
        path.symlink_to(member.linkname)
    elif member.isreg() and (content := archive.extractfile(member)):
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
        with open(open_regular(path, flags), "wb") as file:
            while piece := content.read(BLOCK_BYTES):
                read(piece)
                file.write(piece)
            file.flush()
            os.fchmod(file.fileno(), member.mode & 0o777)
            os.utime(file.fileno(), ns=_times_ns(member))
    else:
        raise SiteError(f"the stream has something that is no file, folder or link: {member.name!r}")


def _times_ns(member: tarfile.TarInfo) -> tuple[int, int]:
    return int(member.uname), int(member.uname)
