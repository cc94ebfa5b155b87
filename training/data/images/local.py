"""Copies shards to the disk of the node before the training begins, so that the shared file system is read once.

FOLDER/torusrun-UID/data-ID/NAME.tar    the copies; ID stands for the shards' folder, names, sizes and times
FOLDER/torusrun-UID/data-ID.lock        held by the process that copies, or removes
FOLDER/torusrun-UID/data-ID.used        held by all readers of the copies; its time is the start of the newest reader

The first rank of the node copies. The others wait for it, as do the ranks of another run with the same shards. A copy
gets its name when all bytes are on the disk, so an incomplete copy of a killed job is made anew. Every node copies all
shards, because in each epoch every rank gets samples of every shard. Copies stay for later runs. If other shards need
the space, copies without readers are removed, the longest unread first.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import socket
import stat
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import IO

from torusrun.training.data.images.shards import Stamps
from torusrun.training.files import lock
from torusrun.training.files.trusted import BLOCK_BYTES, make_own_folder, own_folder, sync, unfinished
from torusrun.training.recipe.reading import ConfigError

KEY = "train.data.options.local"
COPIES = 4  # at a time
SPARE_BYTES = 1 << 30  # stay free beside the copies


def staged(root: Path, stamps: Stamps, folder: str) -> Path:
    """The folder on this node with a copy of every shard. Raises ConfigError if they cannot be copied."""
    place = _place(folder)
    try:
        mine = _own(place)
        copies = mine / f"data-{hashlib.sha256(json.dumps([str(root), stamps]).encode()).hexdigest()[:16]}"
        with lock.held(copies.with_suffix(".lock")):
            copies.mkdir(mode=0o700, exist_ok=True)
            _hold(copies)
            _fill(root, stamps, copies)
    except OSError as error:
        where = error.filename or place
        raise ConfigError(
            f"{KEY}: {where} on {socket.gethostname()}: the shards cannot be copied there: {error.strerror}"
        ) from None
    return copies


def _place(folder: str) -> Path:
    """The path of `folder`. Raises ConfigError unless it is absolute: a relative one is in the run's shared folder."""
    if not isinstance(folder, str):
        raise ConfigError(f"{KEY} must be the absolute path of a folder on the node, not {folder!r}")
    place = Path(os.path.expandvars(os.path.expanduser(folder)))
    if "$" in str(place):
        raise ConfigError(f"{KEY}: {folder!r} names a variable that is not set on {socket.gethostname()}")
    if not place.is_absolute():
        raise ConfigError(f"{KEY}: {folder!r} must be the absolute path of a folder on the node")
    return place


def _own(folder: Path) -> Path:
    """This user's folder in a folder that others may write into. Raises ConfigError, OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    mine = own_folder(folder)
    if wrong := make_own_folder(mine):
        raise ConfigError(
            f"{KEY}: {mine} on {socket.gethostname()}: {wrong}, so nothing is kept there; ask for it to be removed, or "
            "name another folder"
        )
    return mine


def _fill(root: Path, stamps: Stamps, copies: Path) -> None:
    for left in copies.glob(".*.part"):
        left.unlink(missing_ok=True)
    missing = [(name, size) for name, size, _ in stamps if _size(copies / name) != size]
    needed = sum(size for _, size in missing)
    if missing and not _room(copies, needed + SPARE_BYTES):
        free = shutil.disk_usage(copies).free
        raise ConfigError(
            f"{KEY}: {copies.parent} on {socket.gethostname()} has {free / 1e9:.1f} GB free, and the shards need "
            f"{needed / 1e9:.1f} GB and 1.1 GB to spare; name a larger disk, or leave the key out"
        )
    with ThreadPoolExecutor(COPIES) as threads:
        list(threads.map(partial(_copy, root, copies), missing))


def _hold(copies: Path) -> None:
    """Mark the copies as read by this process, until it ends."""
    used = lock.opened(copies.with_suffix(".used"))  # left open
    lock.take(used, shared=True)
    os.utime(used)


def _room(copies: Path, needed: int) -> bool:
    """Whether `needed` bytes are free; removes copies of other shards without readers as far as needed."""
    others = sorted(copies.parent.glob("data-*.used"), key=lambda path: path.stat().st_mtime_ns)
    for used in others:
        if shutil.disk_usage(copies).free >= needed:
            break
        with lock.held(used.with_suffix(".lock"), wait_s=0.0) as turn, lock.held(used, wait_s=0.0) as unread:
            if turn and unread:
                shutil.rmtree(used.with_suffix(""), ignore_errors=True)
    return shutil.disk_usage(copies).free >= needed


def _copy(root: Path, copies: Path, shard: tuple[str, int]) -> None:
    name, size = shard
    with unfinished(copies / name, copies / f".{name}.part") as copy, open(root / name, "rb") as source:
        while block := _block(source, root / name):
            copy.write(block)
        sync(copy)
        if copy.tell() != size:
            raise ConfigError(f"{KEY}: {root / name} changed while it was copied; resume the run when it is complete")


def _block(source: IO[bytes], path: Path) -> bytes:
    """The next block of the file at `path`. Raises OSError with its name, which the error of a read lacks."""
    try:
        return source.read(BLOCK_BYTES)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None


def _size(path: Path) -> int:
    """The size of a file in bytes; -1 if it does not exist."""
    try:
        found = path.lstat()
    except FileNotFoundError:
        return -1
    return found.st_size if stat.S_ISREG(found.st_mode) else -1
