"""The files of a table of metrics: CSV, Parquet by pyarrow, and event files by TensorBoard's own writer."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.show.export.table import PLACE, WORDS, MetricTable

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


@dataclass(frozen=True)
class Format:
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


def as_parquet(table: MetricTable) -> bytes:
    import pyarrow
    from pyarrow import parquet

    file = io.BytesIO()
    parquet.write_table(pyarrow.table({name: table.column(name) for name in table.columns}), file)
    return file.getvalue()


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
    "parquet": Format("metrics.parquet", as_parquet, "pyarrow"),
    "tensorboard": Format("events.out.tfevents.torusrun", as_events, "tensorboard"),
}


def format_of(name: str) -> Format:
    """The format of this name. Raises UserError if there is none, or if its package is not installed."""
    if not (found := FORMATS.get(name)):
        raise UserError(f"there is no format {name!r} (formats: {', '.join(FORMATS)})")
    if found.package and find_spec(found.package) is None:
        missing = f"{name}: this needs {found.package}, which {sys.executable} does not have"
        raise UserError(f"{missing}: pip install {found.package}")
    return found
