"""The loss's scale changes no bit of a gradient, and a step that overflows is seen."""

import math

import pytest
import torch

from torusrun.training.reporting.exits import TrainingError
from torusrun.training.step.loss_scale import FLOOR, MOST_SKIPPED, LossScale


def test_a_scale_and_back_leaves_every_bit() -> None:
    gradients = torch.randn(1000)
    scaled = gradients * 2.0**16
    assert LossScale(2.0**16, 10).unscale_([scaled]) and torch.equal(scaled, gradients)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_number_in_any_bucket_halves_the_scale(bad: float) -> None:
    scale = LossScale(2.0**8, 10)
    buckets = [torch.ones(7), torch.ones(9)]
    buckets[1][3] = bad
    assert not scale.unscale_(buckets)
    assert (scale.scale, scale.skipped) == (2.0**7, 1)


def test_the_scale_doubles_after_so_many_good_steps_in_a_row() -> None:
    scale = LossScale(1.0, 3)
    steps = [1.0, 1.0, math.inf, 1.0, 1.0, 1.0, 1.0]
    scales = [(scale.unscale_([torch.tensor([step])]), scale.scale)[1] for step in steps]
    assert scales == [1.0, 1.0, 0.5, 0.5, 0.5, 1.0, 1.0]


def test_a_resumed_loss_scale_continues_where_it_was() -> None:
    first, second = LossScale(4.0, 2), LossScale(2.0**10, 2)
    first.unscale_([torch.ones(1)])
    second.load_state_dict(first.state_dict())
    for scale in (first, second):
        scale.unscale_([torch.ones(1)])
    assert first.scale == second.scale == 8.0


def test_a_scale_has_a_floor_and_steps_that_none_helps_end_the_training() -> None:
    scale, bad = LossScale(2.0**16, 2), [torch.tensor([math.nan])]
    for _ in range(40 + MOST_SKIPPED - 1):
        assert not scale.unscale_(bad)
    assert scale.scale == FLOOR
    good = torch.tensor([0.3 * FLOOR])
    assert scale.unscale_([good]) and good.item() == torch.tensor(0.3).item(), "no bit is lost at the floor"
    for _ in range(MOST_SKIPPED - 1):
        scale.unscale_(bad)
    with pytest.raises(TrainingError, match="not finite, also with the smallest loss scale"):
        scale.unscale_(bad)


def test_the_scale_is_a_power_of_two() -> None:
    assert LossScale(1000.0, 1).scale == 1024.0
