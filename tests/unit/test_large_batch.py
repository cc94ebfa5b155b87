"""The study of large batches: which training comes next, and what its results say. Without torch."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.large_batch.cell import Case, Cell, cells
from benchmarks.large_batch.results import GUESS, MOST, Scores, add, best, climb, following, found, read
from benchmarks.large_batch.study import CIFAR10, MNIST

LARGE, SEEDS = MNIST.large or 0, MNIST.seeds

LARS = Cell("lars", LARGE)


@given(start=st.integers(-MOST, MOST), peak=st.integers(-MOST, MOST), slope=st.floats(0.1, 5))
def test_the_climb_finds_the_best_rate_and_tries_both_neighbours(start: int, peak: int, slope: float) -> None:
    tried: dict[int, float] = {}
    while (doubled := climb(tried, start)) is not None:
        assert doubled not in tried, "a rate must be tried once"
        tried[doubled] = 90 - slope * abs(doubled - peak)
    assert best(tried) == peak
    assert {each for each in (peak - 1, peak + 1) if abs(each) <= MOST} <= tried.keys()


@pytest.mark.parametrize(("accuracy", "lowest", "highest"), [(90.0, -1, 1), (GUESS, -MOST, 0)])
def test_the_climb_ends_although_all_rates_are_alike(accuracy: float, lowest: int, highest: int) -> None:
    tried: dict[int, float] = {}
    while (doubled := climb(tried)) is not None:
        tried[doubled] = accuracy
    assert (min(tried), max(tried)) == (lowest, highest)


@pytest.mark.parametrize("accuracy", [GUESS, 11.35])
def test_the_climb_goes_down_while_nothing_is_learned(accuracy: float) -> None:
    tried: dict[int, float] = {}
    while (doubled := climb(tried)) is not None:
        tried[doubled] = accuracy if doubled > -5 else 90.0 + doubled
    assert best(tried) == -5


def test_the_climb_passes_a_rate_that_was_good_by_chance() -> None:
    accuracies = {0: 72.7, -1: 46.7, -2: 96.0, -3: 97.0, -4: 96.0}  # of sony-122s without LARS, the first two measured
    tried: dict[int, float] = {}
    while (doubled := climb(tried)) is not None:
        tried[doubled] = accuracies.get(doubled, GUESS)
    assert best(tried) == -3


def finished(cell: Cell, peak: int, before: Scores | None = None) -> Scores:
    scores = dict(before or {})
    while case := following(cell, scores, MNIST):
        scores[case] = 90.0 - abs(case.doubled - peak) + case.seed / 100
    return scores


def test_other_seeds_than_the_one_that_chose_the_rate_are_its_mean() -> None:
    scores = finished(LARS, peak=2)
    each = found(LARS, scores, MNIST)
    assert each and (each.doubled, each.seeds, each.mean) == (2, len(SEEDS), pytest.approx(90.04))
    assert each.error == pytest.approx(math.sqrt(2.5e-4) / math.sqrt(5))
    rule = found(LARS, scores, MNIST, 0)
    assert rule and rule.mean == pytest.approx(88.04), "sides train with the rate of their rule, too"


def test_a_recipe_without_a_technique_trains_with_its_own_best_rate_alone() -> None:
    cell = Cell("google-77s", LARGE, "LARS")
    scores = finished(cell, peak=-2)
    assert {case.doubled for case in scores if case.seed in SEEDS} == {-2}
    assert found(replace(cell, without=""), scores, MNIST) is None


def test_a_recipe_without_a_technique_begins_at_the_best_rate_of_the_whole() -> None:
    cell = Cell("google-77s", LARGE, "LARS")
    whole = finished(replace(cell, without=""), peak=3)
    scores = finished(cell, 3, before=whole)
    assert {case.doubled for case in scores if case.cell == cell} == {2, 3, 4}


def test_results_are_read_as_they_were_written_and_a_diverged_training_has_the_accuracy_of_a_guess(
    tmp_path: Path,
) -> None:
    file = tmp_path / "results.jsonl"
    assert read(file) == {}
    add(file, Case(LARS, 0, 1), 91.2345, {"day": "2026-11-24"})
    add(file, Case(LARS, 1, 1), math.nan, {})
    both = {Case(LARS, 0, 1): 91.234, Case(LARS, 1, 1): GUESS}
    assert read(file) == both
    with file.open("a") as lines:
        lines.write('{"cell": {"si')
    assert read(file) == both, "a line that was being written is no result"
    add(file, Case(LARS, 2, 1), 50.0, {})
    assert read(file) == {**both, Case(LARS, 2, 1): 50.0}


@pytest.mark.parametrize("side", ["sgd", "lars", "sony-224s", "google-77s", "facebook-1h"])
def test_a_case_multiplies_all_rates_and_changes_nothing_else(side: str) -> None:
    cell = Cell(side, LARGE)
    rule, twice = Case(cell, 0, 1).train(MNIST), Case(cell, 1, 1).train(MNIST)
    assert twice.optimizer.lr == 2 * rule.optimizer.lr
    assert [phase.lr and max(phase.lr) for phase in twice.phases] == [
        phase.lr and 2 * max(phase.lr) for phase in rule.phases
    ]
    assert max([rule.batch, *(phase.batch or 0 for phase in rule.phases)]) == LARGE, "it is the largest batch"


def test_the_study_for_a_card_has_both_sides_at_its_batches_and_no_recipe() -> None:
    assert {(cell.side, cell.batch) for cell in cells(CIFAR10)} == {
        (side, batch) for side in ("sgd", "lars") for batch in CIFAR10.batches
    }


def test_every_cell_has_a_training_and_differs_from_its_whole() -> None:
    every = list(cells(MNIST))
    assert len(set(every)) == len(every)
    for cell in every:
        if cell.without:
            assert cell.train(MNIST) != replace(cell, without="").train(MNIST), cell


def test_every_training_is_tested_with_images_as_large_as_those_it_trains_with() -> None:
    for cell in cells(MNIST):
        train = cell.train(MNIST)
        size, test_size = train.data.size, train.data.test_size
        for phase in train.phases:
            size, test_size = phase.size or size, phase.test_size or test_size
            assert test_size in (None, size), f"{cell}, until epoch {phase.until}"
