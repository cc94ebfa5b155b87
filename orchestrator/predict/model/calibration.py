"""Latency and time per byte of every link class, by least squares from measured times.

Source: derived. time = steps * alpha + bytes sent by one rank * beta, with steps and bytes as in cost/. Relative
errors are minimised, so that a small all-reduce counts as much as a large one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from torusrun.orchestrator.base.errors import UserError

MOST_RANKS, MOST_BYTES, LEAST_S, MOST_S = 10_000_000, 1e15, 1e-9, 1e6

# (steps, bytes sent per byte) by number of ranks
SHAPES: dict[str, Callable[[int], tuple[int, float]]] = {
    "all_reduce": lambda ranks: (2 * (ranks - 1), 2 * (ranks - 1) / ranks),
    "reduce_scatter": lambda ranks: (ranks - 1, (ranks - 1) / ranks),
    "all_gather": lambda ranks: (ranks - 1, (ranks - 1) / ranks),
    "send": lambda ranks: (1, 1.0),
}


@dataclass(frozen=True)
class MeasuredTime:
    """One measured time on one link class."""

    link: str
    operation: str
    ranks: int
    size_bytes: float
    time_s: float

    @property
    def terms(self) -> tuple[float, float]:
        """The factors of alpha and beta."""
        steps, share = SHAPES[self.operation](self.ranks)
        return steps, share * self.size_bytes


@dataclass(frozen=True)
class Fit:
    """A link class: the cost of one step and of one byte, and the largest error against the measured times."""

    link: str
    ranks: int
    alpha_s: float
    beta_s_per_byte: float
    worst_percent: float
    rows: int


def read(written: Any) -> list[MeasuredTime]:
    """The rows of a calibration file. Raises UserError with the first wrong row."""
    if not isinstance(written, dict) or written.get("schema") != 1 or not isinstance(written.get("rows"), list):
        raise UserError('must be {"schema": 1, "rows": [...]}; see docs/guides/predict.md')
    return [_row(row, index) for index, row in enumerate(written["rows"])]


def fits(rows: Sequence[MeasuredTime]) -> list[Fit]:
    """One Fit per link class, in the order of the rows. Raises UserError if the rows do not determine one."""
    return [_fit(link, [row for row in rows if row.link == link]) for link in dict.fromkeys(row.link for row in rows)]


def _row(row: Any, index: int) -> MeasuredTime:
    try:
        found = MeasuredTime(row["link"], row["operation"], row["ranks"], float(row["bytes"]), float(row["time_s"]))
        named = isinstance(found.link, str) and found.link and found.operation in SHAPES
        counted = type(found.ranks) is int and 2 <= found.ranks <= MOST_RANKS
        if not (named and counted and 0 <= found.size_bytes <= MOST_BYTES and LEAST_S <= found.time_s <= MOST_S):
            raise ValueError
    except (KeyError, TypeError, ValueError, OverflowError):
        raise UserError(
            f"rows[{index}] must have link, operation ({', '.join(SHAPES)}), ranks (2 or more), bytes, "
            f"and time_s above 0; it is {str(row)[:80]}"
        ) from None
    return found


def _fit(link: str, rows: list[MeasuredTime]) -> Fit:
    alpha, beta = _least_squares([(steps / r.time_s, sent / r.time_s) for r in rows for steps, sent in [r.terms]], link)
    if beta <= 0:
        raise UserError(f"{link}: larger messages do not take longer in these rows; measure larger ones too")
    alpha = max(alpha, 0.0)
    worst = max(abs((steps * alpha + sent * beta) / row.time_s - 1) for row in rows for steps, sent in [row.terms])
    return Fit(link, max(row.ranks for row in rows), alpha, beta, 100 * worst, len(rows))


def _least_squares(rows: list[tuple[float, float]], link: str) -> tuple[float, float]:
    """alpha and beta with a alpha + b beta nearest to 1 for all (a, b); 2 x 2 normal equations with scaled columns."""
    wide = max(a for a, _ in rows), max(b for _, b in rows) or 1.0
    scaled = [(a / wide[0], b / wide[1]) for a, b in rows]
    aa, ab, bb = sum(a * a for a, _ in scaled), sum(a * b for a, b in scaled), sum(b * b for _, b in scaled)
    a1, b1 = sum(a for a, _ in scaled), sum(b for _, b in scaled)
    determinant = aa * bb - ab * ab
    if determinant < 1e-12 * max(aa * bb, 1e-300):
        raise UserError(f"{link}: needs measured times of at least two different sizes")
    return (a1 * bb - b1 * ab) / determinant / wide[0], (b1 * aa - a1 * ab) / determinant / wide[1]
