"""The index of a data set: made once and kept in the user's cache, because a million files are slow to list.

A file of the cache holds an index: a line of JSON, then numbers. It is made again if `stamps` (sizes and times of its
source files or folders) have changed. Ranks that start together wait for the first rank's index. An index names files,
so it is read only if the file and its folder are the user's own; the data set may be another user's.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from array import array
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from torusrun.training.files import lock
from torusrun.training.files.staged import source
from torusrun.training.files.trusted import open_own, open_own_folder, put
from torusrun.training.reporting.output import warn

SCHEMA = 2  # a part of the key of an index: raise it with every change of the content


@dataclass(frozen=True)
class Index:
    """Lists of names, and arrays of numbers."""

    names: dict[str, list[str]] = field(default_factory=dict)
    numbers: dict[str, array[int]] = field(default_factory=dict)


def folder() -> Path:
    """The folder of the indexes."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "torusrun" / "data"


def known(kind: str, root: Path, stamps: Any) -> Index | None:
    """The existing index of these files, or None."""
    try:
        return _read(_place(kind, root), _digest(stamps))
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None


def kept(kind: str, root: Path, stamps: Any, make: Callable[[], Index]) -> Index:
    """The existing index of the files at `root`, or a new index from `make`, which is then kept."""
    if existing := known(kind, root, stamps):
        return existing
    with ExitStack() as locked:
        try:
            place = _place(kind, root)
            place.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            os.close(open_own_folder(place.parent))
            locked.enter_context(lock.held(place.with_suffix(".lock")))
        except (OSError, RuntimeError) as error:
            return _unkept(make(), error)
        if existing := known(kind, root, stamps):
            return existing
        made = make()
        try:
            put(place, _written(made, _digest(stamps)))
        except OSError as error:
            return _unkept(made, error)
        return made


def forget(kind: str, root: Path) -> None:
    """Remove this index, so that the next call makes it again."""
    with suppress(OSError, RuntimeError):
        _place(kind, root).unlink()


def _unkept(index: Index, error: Exception) -> Index:
    warn(f"training: the index of the data set cannot be kept for the next run: {error}")
    return index


def _place(kind: str, root: Path) -> Path:
    return folder() / f"{kind}-{hashlib.sha256(os.fsencode(os.path.realpath(source(root)))).hexdigest()[:24]}.index"


def _digest(stamps: Any) -> str:
    return hashlib.sha256(json.dumps([SCHEMA, stamps]).encode()).hexdigest()


def _written(index: Index, digest: str) -> bytes:
    shapes = {name: [numbers.typecode, len(numbers)] for name, numbers in index.numbers.items()}
    content = b"".join(numbers.tobytes() for numbers in index.numbers.values())
    head = {"stamps": digest, "byteorder": sys.byteorder, "names": index.names, "numbers": shapes}
    head["sha256"] = hashlib.sha256(content).hexdigest()
    return json.dumps(head).encode() + b"\n" + content


def _read(place: Path, digest: str) -> Index | None:
    """The index in the file; None if it is for other files, or damaged."""
    with open(open_own(place), "rb") as file:
        head_line, _, content = file.read().partition(b"\n")
    head = json.loads(head_line)
    if head["stamps"] != digest or head["byteorder"] != sys.byteorder:
        return None
    if head["sha256"] != hashlib.sha256(content).hexdigest():
        return None
    numbers, at = {}, 0
    for name, (typecode, count) in head["numbers"].items():
        numbers[name] = array(typecode)
        size = count * numbers[name].itemsize
        numbers[name].frombytes(content[at : at + size])
        at += size
    return Index(head["names"], numbers)
