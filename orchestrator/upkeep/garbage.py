"""What no run needs any more, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.shown.numbers import size
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.upkeep.cleaning.garbage import Garbage

DAY_S = 86400.0


@dataclass(frozen=True)
class Removal:
    """Something that is removed, and how long ago it was used; `removed` says whether it is gone."""

    what: Garbage
    unused_s: float
    removed: bool = False


def listing(rows: Sequence[Removal]) -> Table[Removal]:
    return Table(COLUMNS, rows)


COLUMNS: tuple[Column[Removal], ...] = (
    Column("KIND", lambda row: row.what.kind, key="kind", right=False),
    Column("SIZE", lambda row: row.what.size_bytes, size, key="bytes", right=True),
    Column("UNUSED", lambda row: row.unused_s, lambda value: f"{value / DAY_S:.0f} d", key="unused_s", right=True),
    Column("WHAT", lambda row: plain(row.what.why), key="what", right=False),
    Column("PATH", lambda row: plain(str(row.what.path)), key="path", right=False),
    Column(None, lambda row: row.removed, key="removed"),
)
