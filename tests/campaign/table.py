"""The results of a campaign: a line per fault, its errors, and a summary per kind."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from tests.campaign.trial import Row

LINE = "{:>3}  {:10}  {:20}  {:>4}  {:>6}  {:>9}  {:10}  {:5}  {:9}  {:9}  {}"
HEAD = LINE.format(
    "no", "place", "kind", "step", "told s", "suspected", "state", "cause", "recovered", "identical", "leftovers"
)
SUM = "{:20}  {:>6}  {:>6}  {:>9}  {:>9}  {:>9}  {:>12}"


def line(row: Row) -> str:
    planned = row.planned
    return LINE.format(
        planned.number, planned.place, planned.kind, planned.step, _seconds(row.told_s), _seconds(row.suspected_s),
        row.state or "-", _yes(row.cause_right), _yes(row.recovered), _yes(row.identical), len(row.leftovers) or "none",
    )  # fmt: skip


def wrong(row: Row) -> str:
    """The reasons why a row is not good."""
    lines = [f"{row.planned.number} {row.planned.place} {row.planned.kind} rank {row.planned.rank} ({row.run})"]
    if row.wrong:
        lines += [f"  cause: {row.wrong}", f"  told: {row.state}: {row.reason}"]
    lines += [f"  trouble: {text}" for text in row.trouble]
    lines += [f"  left: {text}" for text in row.leftovers]
    return "\n".join(lines)


def summary(rows: Sequence[Row]) -> str:
    """The numbers of faults reported correctly, recovered, bit-identical, without leftovers, and the report times."""
    kinds = sorted({row.planned.kind for row in rows})
    table = [SUM.format("kind", "faults", "causes", "recovered", "identical", "leftovers", "longest told")]
    table += [_sum(kind, [row for row in rows if row.planned.kind == kind]) for kind in kinds]
    return "\n".join([*table, _sum("all", rows)])


def write_json(path: Path, seed: int, rows: Sequence[Row]) -> None:
    path.write_text(json.dumps({"seed": seed, "rows": [{**asdict(row), "good": row.good} for row in rows]}, indent=1))


def _sum(name: str, rows: Sequence[Row]) -> str:
    return SUM.format(
        name, len(rows), sum(row.cause_right for row in rows), sum(row.recovered for row in rows),
        sum(row.identical for row in rows), sum(len(row.leftovers) for row in rows),
        _seconds(max((row.told_s for row in rows if row.told_s is not None), default=None)),
    )  # fmt: skip


def _seconds(value: float | None) -> str:
    return "-" if value is None else f"{value:.1f}"


def _yes(true: bool) -> str:
    return "yes" if true else "NO"
