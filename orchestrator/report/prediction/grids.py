"""The best grids beside those of the record runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from orchestrator.network.cost.links import Network
from orchestrator.network.prediction import grids
from orchestrator.network.prediction.compute import Device
from orchestrator.network.prediction.grids import Compared
from orchestrator.report.numbers import dims, ms, thousands
from orchestrator.report.table import Column, Table

NOTE = "XxY: X ranks in a row. Sony's grids, and which side of 48x72 is the row, are from memory."
COLUMNS: tuple[Column[Compared], ...] = (
    Column("GPUs", lambda grid: grid.gpus, thousands, key="gpus"),
    Column("grid", lambda grid: grid.grid, dims, key="grid"),
    Column("whose", lambda grid: grid.whose, key="whose"),
    Column("ring columns ms", lambda grid: grid.ring_columns_s, ms, key="ring_columns_s"),
    Column("better columns ms", lambda grid: grid.best_columns_s, ms, key="best_columns_s"),
    Column("exposed in a step ms", lambda grid: grid.exposed_s, ms, key="exposed_s"),
)


@dataclass(frozen=True)
class Grids:
    """Grids to be shown."""

    table: Table[Compared]

    @staticmethod
    def made(links: Network, device: Device, batch: int) -> Grids:
        return Grids(Table(COLUMNS, grids.compare(links, device, batch)))

    def as_json(self) -> dict[str, Any]:
        return {"grids": self.table.as_json()}

    def as_text(self) -> str:
        return "\n".join([*self.table.lines(), NOTE])
