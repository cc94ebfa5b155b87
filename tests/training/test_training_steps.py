"""Micro-batches, half precision with its scale, and stops, on real processes."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import step_ranks
import torch
from torus_ranks import RankPool

from torusrun.training.reporting.exits import TrainingError
from torusrun.training.step import backward
from torusrun.training.step.backward import FLOOR, MOST_SKIPPED, LossScale

STEPS = 8
SUMS = 2e-6  # what another order of sums changes


def trained(pool: RankPool, folder: Path, grid: tuple[int, ...], changes: dict[str, Any], **sync: Any) -> Any:
    answers = pool.ask(step_ranks.trained, grid, STEPS, str(folder), changes, sync)
    for answer in answers:
        assert {**answer, "loss": 0} == {**answers[0], "loss": 0}, "ranks must hold the same bits"
    return answers[0]


@pytest.mark.parametrize("sync", [{"buckets": "one"}, {"buckets": "fujitsu"}, {"all_reduce": "ddp"}], ids=str)
def test_micro_batches_give_the_weights_of_whole_ones(
    one: RankPool, two: RankPool, tmp_path: Path, sync: dict[str, Any]
) -> None:
    whole = trained(one, tmp_path, (1,), {})
    parts = trained(two, tmp_path, (2, 1), {"accumulate": 3}, **sync)
    assert parts["weights"] == pytest.approx(whole["weights"], abs=SUMS)
    assert parts["loss"] == pytest.approx(whole["loss"], abs=SUMS)


@pytest.mark.parametrize("sync", [{"buckets": "fujitsu"}, {"all_reduce": "ddp"}], ids=str)
def test_all_ranks_clip_by_the_norm_of_their_mean_gradient(
    one: RankPool, two: RankPool, tmp_path: Path, sync: dict[str, Any]
) -> None:
    keys = {"clip_norm": 0.05}
    whole = trained(one, tmp_path, (1,), keys)
    assert trained(two, tmp_path, (2, 1), keys, **sync)["weights"] == pytest.approx(whole["weights"], abs=SUMS)
    free = trained(one, tmp_path, (1,), {})
    assert free["weights"] != pytest.approx(whole["weights"], abs=1e-3), "nothing was clipped"


@pytest.mark.parametrize("sync", [{}, {"buckets": "fujitsu", "wire": "bf16"}, {"all_reduce": "ddp"}], ids=str)
def test_all_ranks_stop_after_the_same_step(two: RankPool, tmp_path: Path, sync: dict[str, Any]) -> None:
    assert two.ask(step_ranks.stopping, (2, 1), str(tmp_path), sync) == [[False, True]] * 2


@pytest.mark.parametrize(("precision", "bound"), [("bf16", 3e-2), ("fp16", 4e-3)])
def test_half_precision_stays_near_full(
    one: RankPool, two: RankPool, tmp_path: Path, precision: str, bound: float
) -> None:
    whole = trained(one, tmp_path, (1,), {})
    half = trained(two, tmp_path, (2, 1), {"precision": precision}, buckets="fujitsu")
    assert half["weights"] != whole["weights"]
    assert half["weights"] == pytest.approx(whole["weights"], abs=bound)


def test_steps_that_overflow_are_skipped_and_the_scale_comes_down(two: RankPool, tmp_path: Path) -> None:
    found = trained(two, tmp_path, (2, 1), {"precision": "fp16", "loss_scale": 2.0**20})
    assert 0 < found["scale"]["skipped"] < STEPS
    assert found["scale"]["scale"] == 2.0 ** (20 - found["scale"]["skipped"])


def test_an_overflow_on_one_rank_is_skipped_by_all(two: RankPool, tmp_path: Path) -> None:
    answers = two.ask(step_ranks.overflowing, (2, 1), str(tmp_path))
    assert answers == [{"same": True, "scale": 2.0**15}] * 2


def test_a_scale_and_back_leaves_every_bit() -> None:
    gradients = torch.randn(1000)
    scaled = gradients * 2.0**16
    assert LossScale(2.0**16).unscale_([scaled]) and torch.equal(scaled, gradients)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_bad_number_in_any_bucket_halves_the_scale(bad: float) -> None:
    scale = LossScale(2.0**8)
    buckets = [torch.ones(7), torch.ones(9)]
    buckets[1][3] = bad
    assert not scale.unscale_(buckets)
    assert (scale.scale, scale.skipped) == (2.0**7, 1)


def test_the_scale_doubles_after_so_many_good_steps_in_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "GROWTH_STEPS", 3)
    scale = LossScale(1.0)
    steps = [1.0, 1.0, math.inf, 1.0, 1.0, 1.0, 1.0]
    scales = [(scale.unscale_([torch.tensor([step])]), scale.scale)[1] for step in steps]
    assert scales == [1.0, 1.0, 0.5, 0.5, 0.5, 1.0, 1.0]


def test_a_resumed_loss_scale_continues_where_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backward, "GROWTH_STEPS", 2)
    first, second = LossScale(4.0), LossScale(2.0**10)
    first.unscale_([torch.ones(1)])
    second.load_state_dict(first.state_dict())
    for scale in (first, second):
        scale.unscale_([torch.ones(1)])
    assert first.scale == second.scale == 8.0


def test_a_scale_has_a_floor_and_steps_that_none_helps_end_the_training() -> None:
    scale, bad = LossScale(2.0**16), [torch.tensor([math.nan])]
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
    assert LossScale(1000.0).scale == 1024.0
