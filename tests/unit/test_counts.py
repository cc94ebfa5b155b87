"""Counts in words: 1 rank, 2 ranks, and no row of none."""

from __future__ import annotations

import pytest

from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.show.screen.pages import Window
from torusrun.training.counted import all_of, counted


@pytest.mark.parametrize(
    ("count", "noun", "words"),
    [
        (0, "rank", "0 ranks"), (1, "rank", "1 rank"), (1024, "GPU", "1,024 GPUs"), (2, "switch", "2 switches"),
        (20, "epoch", "20 epochs"),
    ],
)  # fmt: skip
def test_a_count_has_its_noun_in_the_right_number(count: int, noun: str, words: str) -> None:
    assert counted(count, noun) == words


def test_all_of_one_is_the_one() -> None:
    assert (all_of(1, "rank"), all_of(4, "rank")) == ("the rank", "all 4 ranks")


@pytest.mark.parametrize(
    ("dims", "words"),
    [((1,), "1 rank in one group"), ((2, 1), "1 row of 2 ranks"), ((4, 16, 2), "2 groups of 16 rows of 4 ranks")],
)
def test_a_grid_in_words(dims: tuple[int, ...], words: str) -> None:
    assert Grid(dims).words == words


@pytest.mark.parametrize(
    ("top", "rows", "of_all", "words"),
    [(2, 5, 16, "rows 3-7 of 16"), (0, 20, 16, "rows 1-16 of 16"), (0, 5, 1, "row 1 of 1"), (0, 0, 0, "no rows")],
)
def test_the_rows_of_a_window_in_words(top: int, rows: int, of_all: int, words: str) -> None:
    assert Window(top, rows).words(of_all) == words
