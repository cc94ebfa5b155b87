"""Micro-batches, steps of one's own, half precision and stops, on real processes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import step_ranks
from torus_ranks import RankPool

from torusrun.training.recipe.train import LarsKeys, LossScaleKeys, OptimizerKeys

STEPS = 8
SHARDED = OptimizerKeys("lars", lars=LarsKeys(form="sharded"))
SUMS = 2e-6  # what another order of sums changes


def trained(pool: RankPool, folder: Path, grid: tuple[int, ...], changes: dict[str, Any], **sync: Any) -> Any:
    answers = pool.ask(step_ranks.trained, grid, STEPS, str(folder), changes, sync)
    for answer in answers:
        assert {**answer, "loss": 0} == {**answers[0], "loss": 0}, "ranks must hold the same bits"
    return answers[0]


@pytest.mark.parametrize("sync", [{"buckets": "one"}, {"buckets": "equal"}, {"all_reduce": "ddp"}], ids=str)
def test_micro_batches_give_the_weights_of_whole_ones(
    one: RankPool, two: RankPool, tmp_path: Path, sync: dict[str, Any]
) -> None:
    whole = trained(one, tmp_path, (1,), {})
    parts = trained(two, tmp_path, (2, 1), {"accumulate": 3}, **sync)
    assert parts["weights"] == pytest.approx(whole["weights"], abs=SUMS)
    assert parts["loss"] == pytest.approx(whole["loss"], abs=SUMS)


@pytest.mark.parametrize("sync", [{"buckets": "equal"}, {"all_reduce": "ddp"}], ids=str)
def test_all_ranks_clip_by_the_norm_of_their_mean_gradient(
    one: RankPool, two: RankPool, tmp_path: Path, sync: dict[str, Any]
) -> None:
    keys = {"clip_norm": 0.05}
    whole = trained(one, tmp_path, (1,), keys)
    assert trained(two, tmp_path, (2, 1), keys, **sync)["weights"] == pytest.approx(whole["weights"], abs=SUMS)
    free = trained(one, tmp_path, (1,), {})
    assert free["weights"] != pytest.approx(whole["weights"], abs=1e-3), "nothing was clipped"


@pytest.mark.parametrize("sync", [{}, {"buckets": "equal", "wire": "bf16"}, {"all_reduce": "ddp"}], ids=str)
def test_all_ranks_stop_after_the_same_step(two: RankPool, tmp_path: Path, sync: dict[str, Any]) -> None:
    assert two.ask(step_ranks.stopping, (2, 1), str(tmp_path), sync) == [[False, True]] * 2


@pytest.mark.parametrize(("precision", "bound"), [("bf16", 3e-2), ("fp16", 4e-3)])
def test_half_precision_stays_near_full(
    one: RankPool, two: RankPool, tmp_path: Path, precision: str, bound: float
) -> None:
    whole = trained(one, tmp_path, (1,), {})
    half = trained(two, tmp_path, (2, 1), {"precision": precision}, buckets="equal")
    assert half["weights"] != whole["weights"]
    assert half["weights"] == pytest.approx(whole["weights"], abs=bound)


def test_steps_that_overflow_are_skipped_and_the_scale_comes_down(two: RankPool, tmp_path: Path) -> None:
    changes = {"precision": "fp16", "loss_scale": LossScaleKeys(start=2.0**20)}
    found = trained(two, tmp_path, (2, 1), changes)
    assert 0 < found["scale"]["skipped"] < STEPS
    assert found["scale"]["scale"] == 2.0 ** (20 - found["scale"]["skipped"])


def test_an_overflow_on_one_rank_is_skipped_by_all(two: RankPool, tmp_path: Path) -> None:
    answers = two.ask(step_ranks.overflowing, (2, 1), str(tmp_path))
    assert answers == [{"same": True, "scale": 2.0**15}] * 2
