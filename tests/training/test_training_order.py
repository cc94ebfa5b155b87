"""Every sample once per epoch, whatever the number of ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.order import permutation, rank_batch, shifts
from training.progress import Progress


def whole_batch(seen: int, batch: int, world: int, samples: int, seed: int) -> list[tuple[int, int]]:
    shares = [
        rank_batch(seen, batch=batch, rank=rank, world=world, samples=samples, seed=seed) for rank in range(world)
    ]
    return [sample for share in shares for sample in share]


@given(
    samples=st.integers(1, 60), per_rank=st.lists(st.integers(1, 5), min_size=1, max_size=4), world=st.integers(1, 8),
    seed=st.integers(0, 9), epochs=st.integers(1, 3),
)  # fmt: skip
def test_every_sample_once_per_epoch(samples: int, per_rank: list[int], world: int, seed: int, epochs: int) -> None:
    """Whatever the batch is at each step: the sizes in `per_rank` take turns."""
    progress, seen, batch = Progress(), Counter[tuple[int, int]](), 0
    while progress.samples < epochs * samples:
        batch = world * per_rank[progress.steps % len(per_rank)]
        seen.update(whole_batch(progress.samples, batch, world, samples, seed))
        progress = progress.after(batch)
    for epoch in range(epochs):
        counts = [seen[epoch, sample] for sample in range(samples)]
        assert counts == [1] * samples, f"epoch {epoch} must bring every sample exactly once, got {counts}"
    assert sum(seen.values()) - epochs * samples < batch, "only the last batch may reach into one epoch more"


@given(world=st.sampled_from([1, 2, 4, 8]), seen=st.integers(0, 10_000))
def test_the_union_over_ranks_does_not_depend_on_their_number(world: int, seen: int) -> None:
    assert whole_batch(seen, 64, world, 1437, 1) == whole_batch(seen, 64, 1, 1437, 1)


def test_epochs_and_seeds_differ() -> None:
    orders = {permutation(100, key) for key in ("1/0", "1/1", "2/0")}
    assert len(orders) == 3, "each epoch and each seed must have an order of its own"


def test_the_order_is_the_same_in_every_python() -> None:
    assert permutation(8, "1/0") == (5, 3, 1, 4, 6, 2, 0, 7), "the order changed: resumed runs would see other samples"


def test_shifts_stay_in_reach() -> None:
    drawn = shifts(500, 1, 0, 1)
    assert {move for pair in drawn for move in pair} == {0, 1, 2}
    assert drawn != shifts(500, 1, 1, 1), "each epoch must move the images anew"


@pytest.mark.parametrize(
    ("before", "samples", "batch", "steps"),
    [
        (Progress(), 20 * 1437, 64, 450),
        (Progress(), 10, 10, 1),
        (Progress(), 11, 10, 2),
        (Progress(3, 30), 11, 10, 3),
        (Progress(3, 6), 11, 4, 5),
    ],
)
def test_steps_in_all(before: Progress, samples: int, batch: int, steps: int) -> None:
    assert before.steps_at(samples, batch) == steps
