"""Every sample once per epoch, whatever the number of ranks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.data.order import permutation, rank_batch, shifts, total_steps


def whole_batch(step: int, batch: int, world: int, samples: int, seed: int) -> list[tuple[int, int]]:
    shares = [
        rank_batch(step, batch=batch, rank=rank, world=world, samples=samples, seed=seed) for rank in range(world)
    ]
    return [sample for share in shares for sample in share]


@given(
    samples=st.integers(1, 60), per_rank=st.integers(1, 5), world=st.integers(1, 8), seed=st.integers(0, 9),
    epochs=st.integers(1, 3),
)  # fmt: skip
def test_every_sample_once_per_epoch(samples: int, per_rank: int, world: int, seed: int, epochs: int) -> None:
    batch = per_rank * world
    steps = total_steps(epochs, batch, samples)
    seen = Counter(sample for step in range(steps) for sample in whole_batch(step, batch, world, samples, seed))
    for epoch in range(epochs):
        counts = [seen[epoch, sample] for sample in range(samples)]
        assert counts == [1] * samples, f"epoch {epoch} must bring every sample exactly once, got {counts}"
    assert sum(seen.values()) - epochs * samples < batch, "only the last batch may reach into one epoch more"


@given(world=st.sampled_from([1, 2, 4, 8]), step=st.integers(0, 100))
def test_the_union_over_ranks_does_not_depend_on_their_number(world: int, step: int) -> None:
    assert whole_batch(step, 64, world, 1437, 1) == whole_batch(step, 64, 1, 1437, 1)


def test_epochs_and_seeds_differ() -> None:
    orders = {permutation(100, key) for key in ("1/0", "1/1", "2/0")}
    assert len(orders) == 3, "each epoch and each seed must have an order of its own"


def test_the_order_is_the_same_in_every_python() -> None:
    assert permutation(8, "1/0") == (5, 3, 1, 4, 6, 2, 0, 7), "the order changed: resumed runs would see other samples"


def test_shifts_stay_in_reach() -> None:
    drawn = shifts(500, 1, 0, 1)
    assert {move for pair in drawn for move in pair} == {0, 1, 2}
    assert drawn != shifts(500, 1, 1, 1), "each epoch must move the images anew"


@pytest.mark.parametrize(("epochs", "batch", "samples", "steps"), [(20, 64, 1437, 450), (1, 10, 10, 1), (1, 10, 11, 2)])
def test_total_steps(epochs: int, batch: int, samples: int, steps: int) -> None:
    assert total_steps(epochs, batch, samples) == steps
