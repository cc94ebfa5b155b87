"""The learning rate at the points where it can be said by hand."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torusrun.training.progress import Moment
from torusrun.training.recipe.protocols import Schedule
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import OptimizerKeys, Option, ScheduleKeys, Train
from torusrun.training.schedule import cosine, learning_rate, named, polynomial


@pytest.mark.parametrize(("epoch", "rate"), [(0.0, 0.0), (1.0, 0.1), (2.0, 0.2), (11.0, 0.1), (20.0, 0.0), (20.1, 0.0)])
def test_warm_up_then_cosine(epoch: float, rate: float) -> None:
    assert learning_rate(epoch, peak=0.2, epochs=20, warmup_epochs=2) == pytest.approx(rate)


def test_polynomial() -> None:
    rate = learning_rate(5.0, peak=8.0, epochs=10, warmup_epochs=0, decay=polynomial(2))
    assert rate == pytest.approx(2.0), "half of the way at power 2 leaves a quarter"


@given(warmup_epochs=st.floats(0, 30), epoch=st.floats(0, 25))
def test_never_negative_nor_above_the_peak(warmup_epochs: float, epoch: float) -> None:
    assert 0 <= learning_rate(epoch, peak=1.0, epochs=20, warmup_epochs=warmup_epochs, decay=cosine) <= 1


def schedule(name: str, *, lr: float, epochs: int, **keys: object) -> Schedule:
    return named(Train(epochs=epochs, optimizer=OptimizerKeys(lr=lr), schedule=ScheduleKeys(name, **keys)))  # type: ignore[arg-type]


def rates(schedule: Schedule, iterations: int, per_epoch: int) -> list[float]:
    """Of the first steps, where an epoch has `per_epoch`."""
    return [schedule(Moment(n + 0.5, 0.0, (n + 0.5) / per_epoch, n / per_epoch)) for n in range(iterations)]


def test_steps_as_goyal_took_them() -> None:
    """Batch 8192: to 3.2 in 5 epochs, here from 0; a tenth at epochs 30, 60 and 80 of 90 (1706.02677, section 5.1)."""
    found = rates(schedule("step", lr=3.2, epochs=90, warmup_epochs=5.0), 90 * 157, 157)
    for n, rate in enumerate(found):
        epoch = n // 157
        warming = 3.2 * n / (5 * 157)
        decayed = 3.2 * 0.1 ** sum(epoch >= at for at in (30, 60, 80))
        published = warming if epoch < 5 else decayed
        assert rate == pytest.approx(published), f"iteration {n}"


def test_steps_where_and_by_what_the_recipe_says() -> None:
    found = rates(schedule("step", lr=1.0, epochs=6, warmup_epochs=0.0, options={"at": (2, 4.5), "factor": 0.5}), 12, 2)
    assert found == [1.0] * 4 + [0.5] * 5 + [0.25] * 3


def test_steps_without_epochs_are_scaled_to_the_run() -> None:
    found = rates(schedule("step", lr=1.0, epochs=9, warmup_epochs=0.0), 9, 1)
    assert found == pytest.approx([1.0] * 3 + [0.1] * 3 + [0.01] * 2 + [0.001])


def test_a_polynomial_to_an_end_rate() -> None:
    """TensorFlow's polynomial_decay: (lr - end) * (1 - step / decay_steps)^power + end."""
    found = schedule("polynomial", lr=29.0, epochs=72, warmup_epochs=18.0, end_lr=0.0001)
    for epoch in (20.0, 40.0, 71.9):
        assert found(Moment(0, 0, epoch, 0)) == pytest.approx(28.9999 * (1 - (epoch - 18) / 54) ** 2 + 0.0001)
    assert found(Moment(0, 0, 9.0, 0)) == pytest.approx(14.5) and found(Moment(0, 0, 73.0, 0)) == 0.0001


def test_a_straight_line() -> None:
    found = rates(schedule("linear", lr=1.0, epochs=6, warmup_epochs=2.0, end_lr=0.2), 12, 2)
    assert found == pytest.approx([0.0, 0.25, 0.5, 0.75, 1.0, 0.9, 0.8, 0.7, 0.6, 0.5, 0.4, 0.3])


def test_a_constant() -> None:
    assert rates(schedule("constant", lr=1.0, epochs=4, warmup_epochs=2.0), 4, 1) == [0.0, 0.5, 1.0, 1.0]


@pytest.mark.parametrize(
    ("name", "options", "wrong"),
    [
        ("polynomial", {"power": -1.0}, "power must be above 0, not -1.0"),
        ("step", {"at": 30}, "at must be a list of epochs, not 30"),
        ("step", {"at": (3, 0)}, "at must be above 0, not 0"),
        ("step", {"factor": True}, "factor must be a number, not True"),
    ],
)
def test_an_option_that_makes_no_schedule_is_named(name: str, options: dict[str, Option], wrong: str) -> None:
    with pytest.raises(ConfigError, match=f"^train.schedule.options.{wrong}$"):
        schedule(name, lr=1.0, epochs=4, options=options)
