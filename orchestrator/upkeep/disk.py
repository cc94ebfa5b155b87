"""The room that runs take on their disks, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base.shown.numbers import size
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.folder.disk import Used, used
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.state.view import View


@dataclass(frozen=True)
class Room:
    """A run, or all of them, and the room that it takes."""

    run: str
    state: str
    used: Used


def listing(views: Sequence[View]) -> Table[Room]:
    """The runs with the room that each takes, the largest last, and their sum."""
    rows = [Room(view.run, view.state.value, used(RunFolder(Path(view.folder)))) for view in views]
    rows.sort(key=lambda row: row.used.total)
    every = sum((row.used for row in rows), Used())
    return Table(COLUMNS, [*rows, Room(f"these {len(rows)}", "", every)])


COLUMNS: tuple[Column[Room], ...] = (
    Column("RUN", lambda row: plain(row.run), key="run", right=False),
    Column("STATE", lambda row: row.state or None, key="state", right=False),
    Column("SIZE", lambda row: row.used.total, size, key="bytes", right=True),
    Column("CHECKPOINTS", lambda row: row.used.checkpoints, size, key="checkpoint_bytes", right=True),
    Column("CODE", lambda row: row.used.code, size, key="code_bytes", right=True),
)
