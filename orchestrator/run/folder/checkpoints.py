"""The checkpoints of a user's own program. Only their names, times and bytes are known."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Iterator
from itertools import chain, islice
from pathlib import Path

from torusrun.orchestrator.base.private import open_regular

UNFINISHED = (".tmp", ".temp", ".part", ".partial", ".incomplete", "unfinished")
# What programs write beside their checkpoints, at each start. Alone, such a file may be the checkpoint.
BESIDE = (".log", ".txt", ".out", ".err", ".csv", ".json", ".jsonl", ".yaml", ".yml", ".lock", ".pid", ".md", ".png")
EVENTS = "tfevents"  # in the names of TensorBoard's files
SHARD, METADATA = ".distcp", ".metadata"  # of torch.distributed.checkpoint
NEWEST = 4  # entries that are read: a pointer to the newest checkpoint, as `latest`, is written after it
MOST_FILES = 64  # of each entry that are read
MOST_LOOKED = 10_000  # files of a checkpoint whose sizes are read
BLOCK_BYTES = 65_536
BLOCKS = 8  # of a file, that are read


def finished(folder: Path) -> list[Path]:
    """The entries of a folder, newest change first, without those that are hidden, torn or have an UNFINISHED suffix.

    Logs and the like count only if the folder has nothing else.
    """
    dated = []
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if not entry.name.startswith(".") and not entry.name.endswith(UNFINISHED):
                with contextlib.suppress(OSError):
                    if entry.is_dir() and _lacks_metadata(entry.path):
                        continue
                    dated.append((entry.stat(follow_symlinks=False).st_mtime, entry.name))
    names = [name for _, name in sorted(dated, reverse=True)]
    return [folder / name for name in [name for name in names if not _is_beside(name)] or names]


def _lacks_metadata(checkpoint: str) -> bool:
    """Whether a checkpoint has shards of torch.distributed.checkpoint without `.metadata`, which is written after them.

    Lightning and Accelerate save so with FSDP, the latter in a folder for the model and another for the optimizer.
    """
    for _, _, names in os.walk(checkpoint):
        if any(name.endswith(SHARD) for name in names) and not any(name.endswith(METADATA) for name in names):
            return True
    return False


def _is_beside(name: str) -> bool:
    return name.endswith(BESIDE) or EVENTS in name


def newest(folder: Path) -> Path | None:
    """The entry of `finished` that was changed last; None without an entry."""
    return next(iter(finished(folder)), None)


def content(folder: Path) -> str:
    """A checksum of the checkpoints in a folder: their names, and sizes and a sample of the bytes of the newest few.

    It stays the same if a program only touches these few. '' without checkpoints.
    """
    kept = finished(folder)
    digest = hashlib.sha256("\0".join(sorted(path.name for path in kept)).encode(errors="surrogateescape"))
    for path in chain.from_iterable(islice(_files(each), MOST_FILES) for each in sorted(kept[:NEWEST])):
        digest.update(os.fsencode(path) + b"\0" + (os.fsencode(os.readlink(path)) if path.is_symlink() else b""))
        with contextlib.suppress(OSError), open(open_regular(path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            digest.update(b"%d" % size)
            for block in range(BLOCKS):
                file.seek(block * max(size - BLOCK_BYTES, 0) // (BLOCKS - 1))
                digest.update(file.read(BLOCK_BYTES))
    return digest.hexdigest() if kept else ""


def looks_of(checkpoint: Path) -> str:
    """The number of its files, their bytes and their newest change: they differ while it is written."""
    files, size, newest_ns = 0, 0, 0
    for path in islice(_files(checkpoint), MOST_LOOKED):
        with contextlib.suppress(OSError):
            status = os.lstat(path)
            files, size, newest_ns = files + 1, size + status.st_size, max(newest_ns, status.st_mtime_ns)
    return f"{files}.{size}.{newest_ns}"


def _files(checkpoint: Path) -> Iterator[Path]:
    """A checkpoint, or the files in it, in the order of their names."""
    yield checkpoint
    for folder, folders, names in os.walk(checkpoint):
        folders.sort()
        yield from (Path(folder) / name for name in sorted(names))
