"""The metrics of a run as one table and as a file: CSV, or an event file by TensorBoard's own writer."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from torusrun.orchestrator.base.errors import UserError, explained
from torusrun.orchestrator.base.private import READABLE, trusted
from torusrun.orchestrator.keys.paths import absolute
from torusrun.orchestrator.run.program.progress import finite
from torusrun.orchestrator.show.page.charts import Row, series
from torusrun.training.files.below import BY_UMASK

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


def table(run: str, metrics: Iterable[Row]) -> MetricTable:
    """The metrics of a run, in the order of steps. Steps that a later attempt computed again count once."""
    kept = series(metrics)
    counted = sorted((*kept.steps, *kept.evaluations, *kept.of_roles), key=lambda row: (row["step"], row["t"]))
    rows = [_row(run, row) for row in counted]
    names = dict.fromkeys(name for row in rows for name in row)
    return MetricTable(
        [*(name for name in FIRST if name in names), *(name for name in names if name not in FIRST)], rows
    )


def _row(run: str, row: Mapping[str, Any]) -> dict[str, Cell]:
    numbers = {name: number for name, value in row.items() if (number := finite(value)) is not None}
    return {"run": run, "event": row["event"], **{name: n for name, n in numbers.items() if name not in CONSTANT}}


TAGS = {  # TensorBoard groups its charts by the part before the slash
    "loss": "train/loss",
    "lr": "train/learning_rate",
    "images_per_s": "train/images_per_s",
    "accuracy": "test/accuracy",
    "top5": "test/top5",
    "test_loss": "test/loss",
    "samples": "progress/samples",
    "epoch": "progress/epoch",
}


class Format(NamedTuple):
    """The name of the file of a run, what makes its content, and the package that this needs, or ''."""

    file: str
    content: Callable[[MetricTable], bytes]
    package: str = ""


def as_csv(table: MetricTable) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(table.columns)
    writer.writerows([row.get(name) for name in table.columns] for row in table.rows)
    return text.getvalue().encode()


def as_events(table: MetricTable) -> bytes:
    """One event for each row, with all of its numbers as scalars."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.record_writer import RecordWriter

    file = io.BytesIO()
    writer = RecordWriter(file)
    begun_s = table.rows[0]["t"] if table.rows else 0.0
    writer.write(Event(wall_time=begun_s, file_version="brain.Event:2").SerializeToString())
    for row in table.rows:
        ours = {tag: row[name] for name, tag in TAGS.items() if name in row}
        others = {name: value for name, value in row.items() if name not in (*WORDS, *PLACE, *TAGS)}
        values = [Summary.Value(tag=tag, simple_value=value) for tag, value in {**ours, **others}.items()]
        event = Event(wall_time=row["t"], step=row["step"], summary=Summary(value=values))
        writer.write(event.SerializeToString())
    return file.getvalue()


FORMATS = {
    "csv": Format("metrics.csv", as_csv),
    "tensorboard": Format("events.out.tfevents.torusrun", as_events, "tensorboard"),
}


def format_of(name: str) -> Format:
    """The format of this name. Raises UserError if it is unknown, or if its package is not installed."""
    if not (chosen := FORMATS.get(name)):
        raise UserError(f"there is no format {name!r} (formats: {', '.join(FORMATS)})")
    if chosen.package and find_spec(chosen.package) is None:
        missing = f"{name}: this needs {chosen.package}, which {sys.executable} does not have"
        raise UserError(f"{missing}: pip install {chosen.package}")
    return chosen


def write(run: str, metrics: Iterable[Row], into: Path, kind: str) -> Path:
    """Write the metrics of a run as a file in the folder `into`/RUN; the absolute path of the file.

    Raises UserError if there are no metrics, for an unknown `kind`, if its package is missing, or if the file cannot be
    written.
    """
    made, metric_table = format_of(kind), table(run, metrics)
    if not metric_table.rows:
        raise UserError(f"{run}: it has recorded no steps; `torusrun status {run}` shows its state")
    folder, content = absolute(into), made.content(metric_table)
    path = folder / run / made.file
    with (
        explained(f"{path}: cannot be written", UserError),
        trusted(folder) as below,
        below.folder(run, BY_UMASK) as of_run,
        of_run.unfinished(made.file, f".{made.file}.part", READABLE) as file,
    ):
        file.write(content)
    return path
