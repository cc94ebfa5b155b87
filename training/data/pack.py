"""`python -m torusrun.training.data.pack TREE SHARDS`: packs images in folders into tar shards, in the same order.

A training on the shards takes exactly the samples of a training on the tree.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path

from torusrun.training.data.image_files import open_trees
from torusrun.training.data.images.stored import ROOT, Stored
from torusrun.training.recipe.reading import ConfigError

SHARD_MB = 256
BLOCK_BYTES = 512  # a tar file adds a block to each member, and rounds members up to blocks


def main(arguments: list[str]) -> int:
    """Write the shards; returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m torusrun.training.data.pack", description="Pack images in folders into shards."
    )
    parser.add_argument("tree", type=Path, help="a folder with train/CLASS/*.jpg and val/CLASS/*.jpg")
    parser.add_argument("shards", type=Path, help="the folder for train-*.tar and val-*.tar; new, or empty")
    parser.add_argument("--shard-mb", type=int, default=SHARD_MB, help="size of a shard, in MB (default: %(default)s)")
    asked = parser.parse_args(arguments)
    if asked.shard_mb < 1:
        parser.error("--shard-mb must be at least 1")
    try:
        pack(asked.tree, asked.shards, asked.shard_mb * 10**6)
    except (ConfigError, OSError) as error:
        print(f"pack: {str(error).removeprefix(f'{ROOT}: ')}", file=sys.stderr)
        return 2
    return 0


def pack(tree: Path, shards: Path, shard_bytes: int = SHARD_MB * 10**6) -> None:
    """Write all images of `tree`. Raises ConfigError for another layout, or OSError."""
    split = open_trees(tree.absolute())
    shards.mkdir(parents=True, exist_ok=True)
    if any(shards.iterdir()):
        raise ConfigError(f"{shards} is not empty; name a new folder")
    names: dict[Path, Path] = {}  # temporary names until all shards exist: a part of them would look complete
    try:
        for half, stored in (("train", split.train), ("val", split.test)):
            for number, samples in enumerate(_shards(stored, shard_bytes)):
                unfinished = shards / f".{half}-{number:06d}.part"
                names[unfinished] = shards / f"{half}-{number:06d}.tar"
                _write(unfinished, stored, samples)
        for unfinished, name in names.items():
            unfinished.rename(name)
    finally:
        for unfinished in names:
            unfinished.unlink(missing_ok=True)


def _write(path: Path, stored: Stored, samples: Iterator[tuple[int, bytes]]) -> None:
    with tarfile.open(path, "w", format=tarfile.USTAR_FORMAT) as tar:
        for sample, content in samples:
            _add(tar, f"{sample:08d}{Path(stored.name(sample)).suffix.lower()}", content)
            _add(tar, f"{sample:08d}.cls", str(stored.label(sample)).encode())


def _shards(stored: Stored, shard_bytes: int) -> Iterator[Iterator[tuple[int, bytes]]]:
    """The samples of each shard with their bytes; a shard has a sample or more, and gets no more once it is full."""
    at = 0

    def samples() -> Iterator[tuple[int, bytes]]:
        nonlocal at
        size = 0
        while at < len(stored):
            content = stored.read(at)
            size += len(content) + 4 * BLOCK_BYTES
            yield at, content
            at += 1
            if size >= shard_bytes:
                return

    while at < len(stored):
        yield samples()


def _add(tar: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size, member.mode = len(content), 0o644
    tar.addfile(member, io.BytesIO(content))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
