"""Every sample once per epoch, whatever the number of ranks."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.training.data.order import permutation, rank_batch, shifts
from torusrun.training.progress import Progress


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
    orders = {tuple(permutation(100, key)) for key in ("1/0", "1/1", "2/0")}
    assert len(orders) == 3, "each epoch and each seed must have an order of its own"


def test_the_order_is_the_same_in_every_python() -> None:
    assert tuple(permutation(8, "1/0")) == (5, 3, 1, 4, 6, 2, 0, 7), (
        "the order changed: resumed runs would see other samples"
    )


@given(samples=st.integers(0, 2000), seed=st.integers(0, 2**32 - 1), epoch=st.integers(0, 100))
def test_the_order_is_that_of_pythons_own_random_numbers(samples: int, seed: int, epoch: int) -> None:
    key = f"{seed}/{epoch}"
    draw = Random(f"order/{key}").random
    weights = [draw() for _ in range(samples)]
    assert list(permutation(samples, key)) == sorted(range(samples), key=weights.__getitem__)


@given(
    samples=st.integers(1, 80), seed=st.integers(0, 9), epochs=st.integers(1, 3),
    attempts=st.lists(st.tuples(st.integers(1, 8), st.integers(1, 5), st.integers(0, 6)), min_size=1, max_size=5),
)  # fmt: skip
def test_every_sample_once_per_epoch_when_ranks_and_batch_change_in_the_middle(
    samples: int, seed: int, epochs: int, attempts: list[tuple[int, int, int]]
) -> None:
    """Each attempt has its own number of ranks, its own batch and so many steps; the last goes on to the end."""
    seen, taken, batch = Counter[tuple[int, int]](), 0, 0
    for world, per_rank, steps in [*attempts, (*attempts[0][:2], 10**6)]:
        batch = world * per_rank
        for _ in range(steps):
            if taken >= epochs * samples:
                break
            seen.update(whole_batch(taken, batch, world, samples, seed))
            taken += batch
    assert all(seen[epoch, sample] == 1 for epoch in range(epochs) for sample in range(samples))
    assert sum(seen.values()) == taken, "no sample may come twice in an epoch"
    assert max(seen.values()) == 1


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
