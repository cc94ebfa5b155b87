"""Something that no run needs any more."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Garbage:
    """Of which kind, where, and its size; `used_s` is its last use, of time.time(), and `why` says what it is.

    `remove` looks again whether it is needed. It raises a TorusrunError if so, or if a part of it stays.
    """

    kind: str  # "image", "checkpoints", "leftover" or "code"
    path: Path
    size_bytes: int
    used_s: float
    why: str
    remove: Callable[[], None]
