"""What holds where in a training with phases, and the order of samples, on every step."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.training.data.order import permutation, rank_batch, shifts
from torusrun.training.data.view import View
from torusrun.training.progress import Progress
from torusrun.training.recipe.train import DataKeys, EvaluateKeys, OptimizerKeys, PhaseKeys, Train
from torusrun.training.schedule import Course

IMAGES = 1_281_167
Holds = tuple[int, float, int, float, View]  # phase, learning rate, batch, weight decay, view


def all_steps(course: Course, progress: Progress = Progress()) -> list[tuple[Progress, Holds]]:  # noqa: B008
    """Every step's progress before it, and what holds in it."""
    steps = []
    while not course.finished(progress):
        moment = course.moment_at(progress)
        phase, batch, decay = (
            course.phase_at(progress.samples),
            course.batch_at(progress),
            course.weight_decay_at(progress),
        )
        steps.append((progress, (phase.number, course.rate_at(moment), batch, decay, course.view_at(progress))))
        progress = progress.after(course.batch_at(progress))
    return steps


def test_a_key_that_is_left_out_stays_as_before_and_at_first_as_in_the_training() -> None:
    train = Train(
        epochs=4,
        batch=8,
        data=DataKeys(size=16, augment=False),
        optimizer=OptimizerKeys(weight_decay=0.1),
        phases=(
            PhaseKeys(1, batch=4),
            PhaseKeys(2, size=8),
            PhaseKeys(3, weight_decay=0.2, augment=True),
            PhaseKeys(4),
        ),
    )
    found = [(phase.batch, phase.view, phase.weight_decay) for phase in Course(train, 100).phases]
    small = View(size=8, augment=False)
    assert found == [
        (4, View(size=16, augment=False), 0.1), (4, small, 0.1), (4, small._replace(augment=True), 0.2),
        (4, small._replace(augment=True), 0.2),
    ]  # fmt: skip


def test_without_phases_a_training_is_one() -> None:
    course = Course(Train(epochs=20, batch=64), 1437)
    assert len(course.phases) == 1 and course.total_steps() == 450
    assert course.rate_at(course.moment_at(Progress())) == pytest.approx(0.1 * 32 / 1437)


phases = st.lists(st.tuples(st.floats(0.05, 3.0), st.integers(1, 40)), min_size=1, max_size=5)


@st.composite
def courses(draw: st.DrawFn) -> Course:
    lengths, sizes = zip(*draw(phases), strict=True)
    ends = [sum(lengths[: n + 1]) for n in range(len(lengths))]
    epochs = math.ceil(ends[-1])
    keys = [
        PhaseKeys(end, batch=size * 2, lr=(0.1 * n, 0.2)) for n, (end, size) in enumerate(zip(ends, sizes, strict=True))
    ]
    keys[-1] = replace(keys[-1], until=epochs)
    return Course(Train(epochs=epochs, phases=tuple(keys)), draw(st.integers(1, 60)))


@given(st.integers(1, 3_000_000), st.integers(1, 100), st.data())
def test_a_phase_ends_with_the_sample_that_it_names(samples: int, epochs: int, data: st.DataObject) -> None:
    """In spite of rounding: 0.1 epochs of 30 samples are 3, though 0.1 * 30 > 3."""
    end = data.draw(st.integers(1, epochs * samples))
    assert Course(Train(epochs=epochs, phases=(PhaseKeys(end / samples),)), samples).phases[0].end == end
    between = Course(Train(epochs=epochs, phases=(PhaseKeys((end - 0.5) / samples),)), samples)
    assert between.phases[0].end == end, "a step that begins before the end belongs to the phase"


@given(courses())
def test_every_step_belongs_to_the_phase_in_which_it_begins(course: Course) -> None:
    steps = all_steps(course)
    assert len(steps) == course.total_steps(), "the steps are the sum over the phases"
    for progress, (number, _, batch, *_) in steps:
        phase = course.phases[number]
        assert phase.first <= progress.samples < phase.end and batch == phase.batch
        assert sum(p.first <= progress.samples < p.end for p in course.phases) == 1
    assert [holds[0] for _, holds in steps] == sorted(holds[0] for _, holds in steps)


@given(courses(), st.data())
def test_resumed_anywhere_the_rest_is_the_same(course: Course, data: st.DataObject) -> None:
    steps = all_steps(course)
    at = data.draw(st.integers(0, len(steps) - 1))
    assert all_steps(course, steps[at][0]) == steps[at:]
    assert course.total_steps(steps[at][0]) == len(steps)


@given(courses(), st.integers(1, 2), st.integers(1, 3))
def test_every_sample_is_seen_once_per_epoch(course: Course, world: int, seed: int) -> None:
    samples = course.total_samples // course._train.epochs
    seen = Counter(
        sample
        for progress, (_, _, batch, *_) in all_steps(course)
        for rank in range(world)
        for sample in rank_batch(progress.samples, batch=batch, rank=rank, world=world, samples=samples, seed=seed)
    )
    epochs = course._train.epochs
    assert all(seen[epoch, sample] == 1 for epoch in range(epochs) for sample in range(samples))


@pytest.mark.parametrize(
    ("keys", "epochs"),
    [
        (EvaluateKeys(), [1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
        (EvaluateKeys(every=4), [4, 8, 10]),
        (EvaluateKeys(every=4, first=3), [3, 7, 10]),
        (EvaluateKeys(every=40), [10]),
        (EvaluateKeys(first=8), [8, 9, 10]),
        (EvaluateKeys(every=3, first=20), [10]),
    ],
)
def test_when_evaluations_are_due(keys: EvaluateKeys, epochs: list[int]) -> None:
    course = Course(Train(epochs=10, batch=10, evaluate=keys), 25)
    at = [Progress(step, 10 * step) for step in range(26)]
    due = [now.samples // 25 for before, now in zip(at, at[1:], strict=False) if course.evaluates(before, now)]
    assert due == epochs
    assert course.evaluates(Progress(0, 0), Progress(1, 75)) is (keys.begins <= 3), "a step may pass several epochs"


def whole_batch(seen: int, batch: int, world: int, samples: int, seed: int) -> list[tuple[int, int]]:
    shares = [
        rank_batch(seen, batch=batch, rank=rank, world=world, samples=samples, seed=seed) for rank in range(world)
    ]
    return [sample for share in shares for sample in share]


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
