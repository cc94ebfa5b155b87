"""The metrics of a run as one table: a row for each step or evaluation that counts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.run.program.progress import finite
from torusrun.orchestrator.show.page.series import Row, series

WORDS = ("run", "event")
PLACE = ("t", "attempt", "step")  # where a number belongs
FIRST = (*WORDS, *PLACE, "samples", "epoch", "lr", "loss", "images_per_s", "accuracy", "top5", "test_loss")
CONSTANT = ("total_steps", "total_samples")

Cell = str | int | float | None


@dataclass(frozen=True)
class MetricTable:
    """`columns` in order, and the values of each row by column; a value that was not reported is missing.

    `t` is in seconds since the epoch, `accuracy` and `top5` are shares of 1, `lr` is the learning rate.
    """

    columns: Sequence[str]
    rows: Sequence[Mapping[str, Cell]]

    def column(self, name: str) -> list[Cell]:
        return [row.get(name) for row in self.rows]


def table(run: str, metrics: Iterable[Row]) -> MetricTable:
    """The metrics of a run, in the order of steps. Steps that a later attempt computed again count once."""
    found = series(metrics, begun_s=0.0)
    counted = sorted((*found.steps, *found.evaluations), key=lambda row: (row["step"], row["t"]))
    rows = [_row(run, row) for row in counted]
    names = dict.fromkeys(name for row in rows for name in row)
    return MetricTable(
        [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)], rows
    )


def _row(run: str, row: Mapping[str, Any]) -> dict[str, Cell]:
    numbers = {name: number for name, value in row.items() if (number := finite(value)) is not None}
    return {"run": run, "event": row["event"], **{name: n for name, n in numbers.items() if name not in CONSTANT}}
