"""What the hosts of an attempt have to stage, as launch.json has it, and where the copies of paths are."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class StageEntry:
    """A file or folder of the shared disk; `name` is '' for an image, which has its SHA-256."""

    name: str
    path: str
    sha256: str = ""


@dataclass(frozen=True)
class StageOrder:
    """What each host has to stage, and into which folder; its variables are those of the host."""

    run: str
    folder: str
    entries: tuple[StageEntry, ...]
    secret: str  # proves to each host that another belongs to the attempt
    interface: str | None = None


@dataclass(frozen=True)
class StagedHere:
    """What is staged on a host for a run: its folder, and the copies by their sources."""

    folder: str = ""
    copies: Mapping[str, str] = field(default_factory=dict)


def moved(path: str, copies: Mapping[str, str]) -> str:
    """The path of the copy of `path` if `copies`, by their sources, have it; else `path`."""
    for source, copy in copies.items():
        if path == source or path.startswith(source + os.sep):
            return copy + path[len(source) :]
    return path
