"""The best grids, compared with those of the record runs."""

from __future__ import annotations

from torusrun.orchestrator.base.shown.numbers import ms, thousands
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.place.cost.links import Network
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.predict.answers.predicted import Predicted
from torusrun.orchestrator.predict.model import doubts
from torusrun.orchestrator.predict.model.compute import Device
from torusrun.orchestrator.predict.model.grids import Compared, compare

NOTE = "XxY: X ranks in a row. Sony's grids, and which side of 48x72 is the row, are from memory."
BOUNDS = "90 % interval: from 1/{0:g} of a time to {0:g} times it; one error for all, so their order is surer."
COLUMNS: tuple[Column[Compared], ...] = (
    Column("GPUs", lambda grid: grid.gpus, thousands, key="gpus"),
    Column("grid", lambda grid: grid.grid, lambda dims: str(Grid(dims)), key="grid"),
    Column("whose", lambda grid: grid.whose, key="whose"),
    Column("ring columns ms", lambda grid: grid.ring_columns_s, ms, key="ring_columns_s"),
    Column("better columns ms", lambda grid: grid.best_columns_s, ms, key="best_columns_s"),
    Column("exposed in a step ms", lambda grid: grid.exposed_s, ms, key="exposed_s"),
)


def grids(links: Network, device: Device, batch: int) -> Predicted:
    table, factor = Table(COLUMNS, compare(links, device, batch)), doubts.links_factor()
    record = {"grids": table.as_json(), "times_90": list(factor)}
    return Predicted(record, [*table.lines(), NOTE, BOUNDS.format(factor.high)])
