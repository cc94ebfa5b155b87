"""Forecasts of one run beside each other: on several numbers of nodes, or on each of its grids."""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.base.shown.numbers import between, duration, ms, thousands
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.predict.answers.predicted import Predicted
from torusrun.orchestrator.predict.model.forecast import Forecast

COLUMNS: tuple[Column[Forecast], ...] = (
    Column("ranks", lambda row: row.ranks, thousands, key="ranks"),
    Column("grid", lambda row: row.grid, lambda dims: str(Grid(dims)), key="grid", right=True),
    Column("all-reduce ms", lambda row: row.all_reduce_s, ms, key="all_reduce_s"),
    Column("step ms", lambda row: row.step_s, ms, key="step_s"),
    Column("90 %", lambda row: row.intervals["step_s"], lambda ends: between(ends, ms), key="step_90_s", right=True),
    Column("images/s", lambda row: row.images_per_s, thousands, key="images_per_s"),
    Column("time", lambda row: row.total_s, duration, key="total_s", right=True),
    Column("90 %", lambda row: row.intervals["total_s"], lambda ends: between(ends, duration), key="total_90_s"),
    Column("node-hours", lambda row: row.node_hours, "{:.4g}".format, key="node_hours"),
)


def compared(forecasts: Sequence[Forecast]) -> Predicted:
    """A table with a row for each of these forecasts."""
    table = Table(COLUMNS, forecasts)
    return Predicted({"forecasts": table.as_json()}, table.lines())
