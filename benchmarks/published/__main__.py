"""The published records beside their predictions, and what these do not explain: `python -m benchmarks.published`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from benchmarks.published.model import CLOSE_PERCENT, Duration, PublishedRun, durations, rows
from torusrun.orchestrator.base.shown.numbers import between, thousands
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.forecast.interval import Interval

WORDS = {"baseline": "baseline", "close": "", "off": "over 5 %", "outside": "OUTSIDE", "unpredicted": "not predicted"}
SIGNED, TENTH = "{:+.1f}".format, "{:.1f}".format


def _rates(interval: Interval) -> str:
    return between(interval, thousands) + (" wide" if interval.is_wide else "")


def _of_rate(name: str, row: PublishedRun) -> object:
    return getattr(row.predicted, name) if row.predicted else None


ROWS: tuple[Column[PublishedRun], ...] = (
    Column("row", lambda row: row.who),
    Column("GPUs", lambda row: row.gpus, thousands),
    Column("published", lambda row: row.published.value, thousands),
    Column("mark", lambda row: row.published.mark),
    Column("predicted", partial(_of_rate, "images_per_s"), thousands),
    Column("90 %", partial(_of_rate, "interval"), _rates, right=True),
    Column("error %", lambda row: row.error_percent, SIGNED),
    Column("", lambda row: row.role, WORDS.__getitem__),
    Column("from", lambda row: row.baseline),
)
TIMES: tuple[Column[Duration], ...] = (
    Column("time", lambda time: time.name),
    Column("epochs", lambda time: time.epochs),
    Column("published s", lambda time: time.published.value, "{:g}".format),
    Column("predicted s", lambda time: time.predicted_s, TENTH),
    Column("90 %", lambda time: time.interval_s, lambda ends: between(ends, TENTH), right=True),
    Column("at published rate s", lambda time: time.at_published_rate_s, TENTH),
    Column("unexplained s", lambda time: time.unexplained_s, TENTH),
)


def lines() -> list[str]:
    """The table of throughputs, how many predictions hold, and the times to train."""
    found, times = rows(), Table(TIMES, durations(), empty="")
    table, counts = Table(ROWS, found, empty=""), _counts(found)
    return [
        "images/s, predicted from a smaller row of the same hardware and software or from one GPU's rate; what is",
        "taken from published runs, the wait for stragglers and the doubt of rates, comes from the other rows alone",
        *table.lines(),
        "",
        *counts,
        "\nnot modelled",
        *(f"  {row.who}: {row.not_modelled}" for row in found if row.not_modelled),
        "\nrows out of 5 %, and why",
        *(f"  {row.who}: {_percent(row)}: {row.why}" for row in found if row.role in ("off", "outside", "unpredicted")),
        "\ntimes to train; what the published throughput does not explain is not in the model either",
        *times.lines(),
        *(_sony(time) for time in times.rows if time.name == "sony-v2"),
    ]


def _counts(found: Sequence[PublishedRun]) -> list[str]:
    """How many predictions hold, and which do not."""
    every = [(row, row.predicted) for row in found if row.predicted]
    same, inside = [row for row, _ in every if row.same_program], [row for row, _ in every if row.role != "outside"]
    wide = [row.name for row, rate in every if rate.interval.is_wide]
    outside = [row.name for row, _ in every if row.role == "outside"]
    far = [f"{row.name} {_percent(row)}" for row in same if row.role != "close"]
    reason = next((rate.widened_by for _, rate in every if rate.interval.is_wide), "")
    return [
        f"within {CLOSE_PERCENT:g} %: {len(same) - len(far)} of the {len(same)} rows whose baseline is the same "
        f"program on the same nodes; {_listed('not', far)}",
        f"inside the 90 % interval: {len(inside)} of {len(every)} rows; {_listed('outside', outside)}",
        f"{_listed('too wide to plan by', wide)}; {reason}" if wide else "no interval is too wide to plan by",
    ]


def _listed(word: str, names: Sequence[str]) -> str:
    return f"{word}: {', '.join(names) or 'none'}"


def _sony(d: Duration) -> str:
    return (
        f"  unexplained: Sony's {d.published.value:g} s is not {d.epochs} epochs at its peak rate, which take "
        f"{d.at_published_rate_s:.0f} s; no publication explains the other {d.unexplained_s:.0f} s"
    )


def _percent(row: PublishedRun) -> str:
    return "no prediction" if row.error_percent is None else f"{row.error_percent:+.1f} %"


if __name__ == "__main__":
    print("\n".join(lines()))
