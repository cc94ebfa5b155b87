"""The published records as a table, and what the table does not explain."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from orchestrator.network.prediction import published
from orchestrator.network.prediction.lost import HeldOut, held_out
from orchestrator.network.prediction.records import Duration, PublishedRun
from orchestrator.network.prediction.text import ms, table

WORDS = {"baseline": "baseline", "close": "", "out": "OUT of 5 %", "unpredicted": "not predicted"}


@dataclass(frozen=True)
class Published:
    """All rows and times."""

    rows: list[PublishedRun]
    durations: list[Duration]

    @staticmethod
    def made() -> Published:
        return Published(published.rows(), published.durations())

    def as_json(self) -> dict[str, Any]:
        lost = {one.row.name: one for one in held_out(self.rows)}
        return {
            "rows": [_row_json(row, lost.get(row.name)) for row in self.rows],
            "times": [_time_json(d) for d in self.durations],
        }

    def as_text(self) -> str:
        out = [row for row in self.rows if row.role in ("out", "unpredicted")]
        head = ["row", "GPUs", "published", "mark", "predicted", "error %", "", "from"]
        times = ["time", "epochs", "published s", "predicted s", "at published rate s", "unexplained s"]
        return "\n".join(
            [
                "images/s, predicted from a smaller row of the same hardware and software or from one GPU's rate",
                table(head, [_cells(row) for row in self.rows]),
                "\nnot modelled",
                *[f"  {row.who}: {row.not_modelled}" for row in self.rows if row.not_modelled],
                "\nrows out of 5 %, and why",
                *[f"  {row.who}: {_percent(row)}: {row.why}" for row in out],
                "\nlost in a step beyond the model, where the baseline is the same program on the same nodes; each row",
                "corrected by the median of the others (found after the fact: few rows, no formula)",
                table(
                    ["row", "lost ms", "others' median ms", "error % then"],
                    [_lost_cells(one) for one in held_out(self.rows)],
                ),
                "\ntimes to train; what the published throughput does not explain is not in the model either",
                table(times, [_time_cells(d) for d in self.durations]),
                *_sony(self.durations),
            ]
        )


def _sony(durations: list[Duration]) -> Iterator[str]:
    for d in durations:
        if d.name == "sony-v2":
            yield (
                f"  unexplained: Sony's {d.published.value:g} s is not {d.epochs} epochs at its peak rate, which take "
                f"{d.at_published_rate_s:.0f} s; nothing published says where the other {d.unexplained_s:.0f} s go"
            )


def _percent(row: PublishedRun) -> str:
    return "no prediction" if row.error_percent is None else f"{row.error_percent:+.1f} %"


def _cells(row: PublishedRun) -> list[str]:
    predicted = "" if row.predicted is None else f"{row.predicted:,.0f}"
    error = "" if row.error_percent is None else f"{row.error_percent:+.1f}"
    published, mark = f"{row.published.value:,.0f}", row.published.mark
    return [row.who, f"{row.gpus:,}", published, mark, predicted, error, WORDS[row.role], row.baseline or ""]


def _lost_cells(one: HeldOut) -> list[str]:
    return [one.row.who, ms(one.row.lost_s), ms(one.others_s), f"{one.error_percent:+.1f}"]


def _time_cells(d: Duration) -> list[str]:
    predicted = "" if d.predicted_s is None else f"{d.predicted_s:.1f}"
    return [
        d.name,
        str(d.epochs),
        f"{d.published.value:g}",
        predicted,
        f"{d.at_published_rate_s:.1f}",
        f"{d.unexplained_s:.1f}",
    ]


def _row_json(row: PublishedRun, lost: HeldOut | None) -> dict[str, Any]:
    return {
        "row": row.name,
        "who": row.who,
        "gpus": row.gpus,
        "published_images_per_s": row.published.value,
        "mark": row.published.mark,
        "source": row.published.source,
        "baseline": row.baseline,
        "predicted_images_per_s": row.predicted,
        "error_percent": row.error_percent,
        "role": row.role,
        "lost_s": lost.row.lost_s if lost else None,
        "others_lost_s": lost.others_s if lost else None,
        "error_percent_with_others_loss": lost.error_percent if lost else None,
        "not_modelled": row.not_modelled,
        "why": row.why,
    }


def _time_json(d: Duration) -> dict[str, Any]:
    return {
        "row": d.name,
        "epochs": d.epochs,
        "published_s": d.published.value,
        "predicted_s": d.predicted_s,
        "at_published_rate_s": d.at_published_rate_s,
        "unexplained_s": d.unexplained_s,
    }
