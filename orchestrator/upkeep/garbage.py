"""Something that no run needs any more, and a table of such things."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shown.numbers import size
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain

DAY_S = 86400.0


@dataclass(frozen=True)
class Garbage:
    """Something that can be removed."""

    kind: str  # "image" or "leftover"
    path: Path
    size_bytes: int
    used_s: float  # its last use (of time.time())
    why: str  # what it is
    remove: Callable[[], None]  # looks again whether it is needed; raises a TorusrunError if so, or if a part stays
    removed: bool = False


def listing(things: Sequence[Garbage], now_s: float) -> Table[Garbage]:
    columns: tuple[Column[Garbage], ...] = (
        Column("KIND", lambda one: one.kind, key="kind", right=False),
        Column("SIZE", lambda one: one.size_bytes, size, key="bytes", right=True),
        Column("UNUSED", lambda one: now_s - one.used_s, lambda s: f"{s / DAY_S:.0f} d", key="unused_s", right=True),
        Column("WHAT", lambda one: plain(one.why), key="what", right=False),
        Column("PATH", lambda one: plain(str(one.path)), key="path", right=False),
        Column(None, lambda one: one.removed, key="removed"),
    )
    return Table(columns, things)


def remove_tree(path: Path) -> None:
    """Remove a folder. Raises SiteError if a part of it stays."""
    shutil.rmtree(path, ignore_errors=True)
    if path.exists():
        raise SiteError(f"{path}: this could not be removed completely; see its permissions, and remove it by hand")
