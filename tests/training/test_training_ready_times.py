"""When gradients are ready: the median over steps, without the first ones."""

from __future__ import annotations

import torch

from torusrun.training.sync.bucket import ReadyTimes
from torusrun.training.sync.planner import MeasuredCost, best_layout


def test_the_median_over_the_steps_after_the_first_two() -> None:
    times = ReadyTimes(torch.device("cpu"))
    times._steps = [(0.0, {0: 90.0, 1: 99.0}), (0.0, {0: 90.0, 1: 99.0})]
    times._steps += [(10.0, {0: 11.0, 1: 15.0}), (20.0, {0: 24.0, 1: 26.0}), (30.0, {0: 32.0})]
    assert times.median_s(3) == [2.0, 5.5, 6.0], "a gradient that never came is ready with the last"


def test_marks_follow_each_other_on_the_clock() -> None:
    times = ReadyTimes(torch.device("cpu"))
    times.begin()
    for number in (2, 1, 0):
        times.complete(number)
    late, middle, early = times.median_s(3)
    assert 0 <= early <= middle <= late


def test_the_best_layout_takes_gradients_as_they_become_ready() -> None:
    cost_s = MeasuredCost([(1, 0.1), (100, 0.2)])
    layout = best_layout([3.0, 3.0, 1.0, 2.0], [10.0, 10.0, 10.0, 10.0], cost_s)
    assert layout.order == (2, 3, 1, 0), "of two that are ready at once, the one nearer the output comes first"
    assert layout.counts == (1, 1, 2), "each as early as it can be, and the last two at once"
