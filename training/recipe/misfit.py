"""A key of a recipe that does not go with others."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from training.counted import counted
from training.recipe.train import Train


class Misfit(NamedTuple):
    """A key below `train` that does not go with others. `advice` says how to correct it in a file."""

    key: str
    message: str
    advice: str


def undivided(train: Train, batch: int, ranks: int) -> str | None:
    """The divisor that a batch must have and does not; None if it divides."""
    if batch >= 1 and batch % (ranks * train.accumulate) == 0:
        return None
    return (
        counted(ranks, "rank")
        if train.accumulate == 1
        else f"{counted(ranks, 'rank')} x {train.accumulate} (accumulate)"
    )


def of_batch(key: str, train: Train, batch: int, ranks: int) -> Iterator[Misfit]:
    """A misfit if the batch at `key` does not divide among the ranks."""
    if by := undivided(train, batch, ranks):
        parts = ranks * train.accumulate
        near = max(1, round(batch / parts)) * parts
        yield Misfit(key, f"{batch} does not divide by {by}", f"try {near}")


def of_range(key: str, span: tuple[float, float]) -> Iterator[Misfit]:
    """A misfit if the range at `key` is empty."""
    low, high = span
    if low > high:
        yield Misfit(key, f"[{low:g}, {high:g}] is empty", f"write [{high:g}, {low:g}]")
