"""The published records beside their predictions, and the differences that the table does not explain."""

from __future__ import annotations

from orchestrator.network.prediction.published import durations, rows
from orchestrator.network.prediction.records import Duration, HeldOut, PublishedRun, held_out
from orchestrator.report.numbers import ms, thousands
from orchestrator.report.prediction.predicted import Predicted
from orchestrator.report.table import Column, Table

WORDS = {"baseline": "baseline", "close": "", "out": "OUT of 5 %", "unpredicted": "not predicted"}
SIGNED, TENTH = "{:+.1f}".format, "{:.1f}".format

ROWS: tuple[Column[PublishedRun], ...] = (
    Column(None, lambda row: row.name, key="row"),
    Column("row", lambda row: row.who, key="who"),
    Column("GPUs", lambda row: row.gpus, thousands, key="gpus"),
    Column("published", lambda row: row.published.value, thousands, key="published_images_per_s"),
    Column("mark", lambda row: row.published.mark, key="mark"),
    Column("predicted", lambda row: row.predicted, thousands, key="predicted_images_per_s"),
    Column("error %", lambda row: row.error_percent, SIGNED, key="error_percent"),
    Column("", lambda row: row.role, WORDS.__getitem__, key="role"),
    Column("from", lambda row: row.baseline, key="baseline"),
    Column(None, lambda row: row.published.source, key="source"),
    Column(None, lambda row: row.not_modelled, key="not_modelled"),
    Column(None, lambda row: row.why, key="why"),
)
LOST: tuple[Column[HeldOut], ...] = (
    Column("row", lambda one: one.row.who),
    Column("lost ms", lambda one: one.row.lost_s, ms, key="lost_s"),
    Column("others' median ms", lambda one: one.others_s, ms, key="others_lost_s"),
    Column("error % then", lambda one: one.error_percent, SIGNED, key="error_percent_with_others_loss"),
)
TIMES: tuple[Column[Duration], ...] = (
    Column("time", lambda time: time.name, key="row"),
    Column("epochs", lambda time: time.epochs, key="epochs"),
    Column("published s", lambda time: time.published.value, "{:g}".format, key="published_s"),
    Column("predicted s", lambda time: time.predicted_s, TENTH, key="predicted_s"),
    Column("at published rate s", lambda time: time.at_published_rate_s, TENTH, key="at_published_rate_s"),
    Column("unexplained s", lambda time: time.unexplained_s, TENTH, key="unexplained_s"),
)


def published() -> Predicted:
    found, times = rows(), Table(TIMES, durations(), empty="")
    table, lost = Table(ROWS, found, empty=""), Table(LOST, held_out(found))
    by_row = {one.row.name: record for one, record in zip(lost.rows, lost.as_json(), strict=True)}
    none = {column.key: None for column in LOST if column.key}
    records = [{**record, **by_row.get(record["row"], none)} for record in table.as_json()]
    lines = [
        "images/s, predicted from a smaller row of the same hardware and software or from one GPU's rate",
        *table.lines(),
        "\nnot modelled",
        *(f"  {row.who}: {row.not_modelled}" for row in found if row.not_modelled),
        "\nrows out of 5 %, and why",
        *(f"  {row.who}: {_percent(row)}: {row.why}" for row in found if row.role in ("out", "unpredicted")),
        "\nlost in a step beyond the model, where the baseline is the same program on the same nodes; each row",
        "corrected by the median of the others (found after the fact: few rows, no formula)",
        *lost.lines(),
        "\ntimes to train; what the published throughput does not explain is not in the model either",
        *times.lines(),
        *(_sony(time) for time in times.rows if time.name == "sony-v2"),
    ]
    return Predicted({"rows": records, "times": times.as_json()}, lines)


def _sony(d: Duration) -> str:
    return (
        f"  unexplained: Sony's {d.published.value:g} s is not {d.epochs} epochs at its peak rate, which take "
        f"{d.at_published_rate_s:.0f} s; nothing published says where the other {d.unexplained_s:.0f} s go"
    )


def _percent(row: PublishedRun) -> str:
    return "no prediction" if row.error_percent is None else f"{row.error_percent:+.1f} %"
