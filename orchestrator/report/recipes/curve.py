"""A curve over epochs in characters, both axes linear."""

from __future__ import annotations

from collections.abc import Sequence

MARGIN = 11  # columns for the numbers on the left


def curve(name: str, values: Sequence[float], height: int) -> str:
    """`values` from left to right, one per column, from the lowest at the bottom to the highest at the top."""
    low, high = min(values), max(values)
    cells = [[" "] * len(values) for _ in range(height)]
    for column, value in enumerate(values):
        up = (value - low) / (high - low) if high > low else 0.5
        cells[height - 1 - round(up * (height - 1))][column] = "*"
    left = [_number(high), *[""] * (height - 2), _number(low)]
    rows = [f"{number:>{MARGIN - 2}} |{''.join(row)}".rstrip() for number, row in zip(left, cells, strict=True)]
    return "\n".join([name, *rows])


def axis(epochs: float, width: int) -> str:
    """The line below all curves."""
    return f"{'epoch':>{MARGIN - 2}} 0{f'{epochs:g}':>{width}}"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"
