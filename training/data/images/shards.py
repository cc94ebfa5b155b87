"""Images in tar files, in WebDataset's convention: KEY.jpg, and next to it KEY.cls with the number of its class.

The shards are ROOT/train-*.tar and ROOT/val-*.tar, not compressed. Their headers are read once. The index gives the
shard and the first byte of each image, so samples can be read in any order and nothing is unpacked.
"""

from __future__ import annotations

import errno
import hashlib
import os
import resource
import tarfile
from array import array
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import groupby
from pathlib import Path

from torusrun.training.data.images import index
from torusrun.training.data.images.index import Index
from torusrun.training.data.images.stored import ROOT, SUFFIXES, Split, telling
from torusrun.training.recipe.reading import ConfigError

HALVES = ("train", "val")
HEADER_BYTES = 512
NAME_BYTES = 100
LONGEST_PADDING_BYTES = 1 << 20  # tar fills its last record with zeros: 10,240 bytes without --blocking-factor
LARGEST_CLASS = 1_000_000
Stamps = list[tuple[str, int, int]]
"""(name of the shard, its size in bytes, the time of its last change)."""


class Shards:
    """The images of one half, in the order of the shards and of their members."""

    def __init__(self, root: Path, half: str, headers: Index, stamps: Stamps) -> None:
        self.root, self.stamps = root, stamps
        self._descriptors: list[int] = []
        self._names = headers.names[half]
        numbers = headers.numbers
        self._begins, self._sizes = numbers[f"{half} begins"], numbers[f"{half} sizes"]
        self._labels, self._shard_ends = numbers[f"{half} labels"], numbers[f"{half} ends"]

    def __len__(self) -> int:
        return len(self._labels)

    def label(self, sample: int) -> int:
        return self._labels[sample]

    def name(self, sample: int) -> str:
        """The image's shard and member."""
        shard = self.root / self._names[self._shard(sample)]
        try:
            header = self._read(sample, self._begins[sample] - HEADER_BYTES, NAME_BYTES)
        except OSError:
            return f"{shard}: byte {self._begins[sample]}"
        return f"{shard}: {os.fsdecode(header.split(bytes(1))[0])}"

    def identity(self) -> str:
        return hashlib.sha256(self._labels.tobytes() + self._sizes.tobytes()).hexdigest()

    def read(self, sample: int, most: int = -1) -> bytes:
        size = self._sizes[sample]
        return self._read(sample, self._begins[sample], size if most < 0 else min(size, most))

    def keep_open(self) -> None:
        """Open all shards if the process has enough descriptors. Raises OSError."""
        if len(self._names) <= resource.getrlimit(resource.RLIMIT_NOFILE)[0] // 4:
            self._descriptors = [_descriptor(self.root / name) for name in self._names]

    def _read(self, sample: int, begin: int, size: int) -> bytes:
        shard = self._shard(sample)
        if self._descriptors:
            return _part(self._descriptors[shard], size, begin)
        descriptor = _descriptor(self.root / self._names[shard])
        try:
            return _part(descriptor, size, begin)
        finally:
            os.close(descriptor)

    def _shard(self, sample: int) -> int:
        return bisect_right(self._shard_ends, sample)


def open_shards(root: Path) -> Split[Shards]:
    """The shards at `root`. Raises ConfigError for tar files that do not follow the convention."""
    stamps = stamps_of(root)
    return _opened(root, index.kept("tar-shards", root, stamps, lambda: _scanned(root, stamps)), stamps)


def kept_open(root: Path) -> Split[Shards]:
    """As `open_shards`; the files stay open if the process has enough descriptors."""
    halves = open_shards(root)
    for half in (halves.train, halves.test):
        half.keep_open()
    return halves


def known_shards(root: Path) -> Split[Shards] | None:
    """The shards at `root` if their headers were read before; reading them takes minutes. Raises ConfigError."""
    stamps = stamps_of(root)
    headers = index.known("tar-shards", root, stamps)
    return _opened(root, headers, stamps) if headers else None


def stamps_of(root: Path) -> Stamps:
    """The stamps of the shards at `root`, training shards first. Raises ConfigError."""
    with telling(root), os.scandir(root) as entries:
        stamps = sorted(_stamp(each) for each in entries if each.name.endswith(".tar"))
    for half in HALVES:
        if not _of(half, stamps):
            raise ConfigError(f"{ROOT}: {root} has no {half}-*.tar; name the folder in which the shards are")
    return [each for half in HALVES for each in _of(half, stamps)]


def _stamp(shard: os.DirEntry[str]) -> tuple[str, int, int]:
    with telling(Path(shard.path)):
        status = shard.stat()
    return shard.name, status.st_size, status.st_mtime_ns


def _of(half: str, stamps: Stamps) -> Stamps:
    return [each for each in stamps if each[0].startswith(f"{half}-")]


def _opened(root: Path, headers: Index, stamps: Stamps) -> Split[Shards]:
    train, test = (Shards(root, half, headers, stamps) for half in HALVES)
    return Split(train, test, headers.numbers["classes"][0])


def _scanned(root: Path, stamps: Stamps) -> Index:
    names: dict[str, list[str]] = {}
    numbers: dict[str, array[int]] = {}
    for half in HALVES:
        names[half] = [name for name, _, _ in _of(half, stamps)]
        begins, sizes, labels, ends = array("Q"), array("Q"), array("I"), array("Q")
        for name in names[half]:
            for begin, size, label in _members(root / name):
                begins.append(begin)
                sizes.append(size)
                labels.append(label)
            ends.append(len(labels))
        if not labels:
            raise ConfigError(f"{ROOT}: {root}/{half}-*.tar hold no images")
        numbers |= {f"{half} begins": begins, f"{half} sizes": sizes, f"{half} labels": labels, f"{half} ends": ends}
    classes = max(numbers["train labels"]) + 1
    if (largest := max(numbers["val labels"])) >= classes:
        raise ConfigError(
            f"{ROOT}: {root}/val-*.tar have class {largest}, and train-*.tar have none above {classes - 1}"
        )
    return Index(names, numbers | {"classes": array("Q", [classes])})


def _members(shard: Path) -> Iterator[tuple[int, int, int]]:
    """(first byte, bytes, label) of every image of a shard. Raises ConfigError that names it."""
    with telling(shard):
        size = shard.stat().st_size
        try:
            with tarfile.open(shard, "r:") as tar:
                plain = (member for member in tar if _is_file(shard, member))
                for key, members in groupby(plain, key=lambda member: _key(member.name)):
                    yield _sample(tar, shard, key, _by_suffix(shard, members), size)
                _check_end(tar, shard, size)
        except (tarfile.TarError, EOFError, ValueError) as error:
            if isinstance(error, ConfigError):
                raise
            raise ConfigError(f"{ROOT}: {shard} is not a complete tar file ({error}); make or copy it again") from None


def _is_file(shard: Path, member: tarfile.TarInfo) -> bool:
    """Whether it is a file. Raises ConfigError for a link, whose image would be missing silently, and for holes."""
    if member.issym() or member.islnk():
        raise ConfigError(
            f"{ROOT}: {shard}: {member.name} is a link to {member.linkname}, and no file; make the shard again "
            "with the files themselves (GNU tar: --dereference --hard-dereference)"
        )
    if member.issparse():
        raise ConfigError(
            f"{ROOT}: {shard}: {member.name} is stored without its zeros; make the shard without --sparse"
        )
    return member.isreg()


def _by_suffix(shard: Path, members: Iterable[tarfile.TarInfo]) -> dict[str, tarfile.TarInfo]:
    """The members of a key, by extension. Raises ConfigError if two have the same extension."""
    by_suffix: dict[str, tarfile.TarInfo] = {}
    for member in members:
        first = by_suffix.setdefault(_suffix(member.name), member)
        if first is not member:
            raise ConfigError(
                f"{ROOT}: {shard}: {member.name} follows {first.name}, with the same key and extension; "
                "give every sample a key of its own"
            )
    return by_suffix


def _sample(
    tar: tarfile.TarFile, shard: Path, key: str, members: dict[str, tarfile.TarInfo], size: int
) -> tuple[int, int, int]:
    images = [member for suffix, member in members.items() if suffix in SUFFIXES]
    if len(images) != 1 or ".cls" not in members:
        held = ", ".join(sorted(members))
        raise ConfigError(f"{ROOT}: {shard}: {key} must have one image and one .cls next to each other, but has {held}")
    if images[0].offset_data + images[0].size > size:
        raise ConfigError(f"{ROOT}: {shard} ends within {images[0].name}; make or copy it again")
    return images[0].offset_data, images[0].size, _label(tar, shard, members[".cls"])


def _check_end(tar: tarfile.TarFile, shard: Path, size: int) -> None:
    """Raises ReadError unless zeros follow the last member: Python takes a damaged header for the end.

    Raises ConfigError if more follows than the zeros that fill a record: such images would be missing.
    """
    assert tar.fileobj
    tar.fileobj.seek(tar.offset)
    rest = tar.fileobj.read(LONGEST_PADDING_BYTES)
    if len(rest) < HEADER_BYTES or any(rest[:HEADER_BYTES]):
        raise tarfile.ReadError(f"no header at byte {tar.offset}")
    if any(rest):
        raise ConfigError(
            f"{ROOT}: {shard} continues after the end of its archive at byte {tar.offset}, as in tar files joined "
            "by cat; join them with 'tar --concatenate', or make each a shard"
        )
    if size - tar.offset > LONGEST_PADDING_BYTES:
        raise ConfigError(
            f"{ROOT}: {shard} has {size - tar.offset} bytes after the end of its archive at byte {tar.offset}, as "
            "in an incomplete copy; copy or make it again"
        )


def _label(tar: tarfile.TarFile, shard: Path, member: tarfile.TarInfo) -> int:
    file = tar.extractfile(member)
    text = file.read(32).strip() if file else b""
    if not text.isdigit() or int(text) >= LARGEST_CLASS:
        raise ConfigError(f"{ROOT}: {shard}: {member.name} must hold the number of a class, from 0 on")
    return int(text)


def _key(name: str) -> str:
    """A member's path, up to the first dot of the file's name."""
    folder, _, file = name.rpartition("/")
    return f"{folder}/{file.partition('.')[0]}"


def _suffix(name: str) -> str:
    return "." + name.rpartition("/")[2].partition(".")[2].lower()


def _descriptor(path: Path) -> int:
    return os.open(path, os.O_RDONLY | os.O_CLOEXEC)


def _part(descriptor: int, size: int, begin: int) -> bytes:
    """`size` bytes from `begin` on. Raises OSError if the shard has become shorter: that is not a corrupt image."""
    content = os.pread(descriptor, size, begin)
    if len(content) < size:
        raise OSError(errno.EIO, f"a shard ends before byte {begin + size}, but was longer when it was indexed")
    return content
