"""Gradients in buckets on real processes: every way to reduce them gives the weights of one process alone."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import gradient_ranks
import pytest
import torch
from torus_ranks import Pools, RankPool
from training_runs import config, launched

from torusrun.training.recipe.train import ModelKeys
from torusrun.training.sync.bucket import ReadyTimes
from torusrun.training.sync.planner import MeasuredCost, best_layout

STEPS = 10  # the exact plan is used after the first six
BUCKETS = ("exact", "fujitsu", "ddp", "one")
REDUCED_ALIKE = [{"all_reduce": "torus", "buckets": buckets} for buckets in BUCKETS]
OTHERS: list[dict[str, Any]] = [
    {"all_reduce": "flat", "buckets": "fujitsu"},
    {"all_reduce": "hierarchical", "buckets": "one"},
    {"all_reduce": "hybrid", "buckets": "fujitsu"},
]
ULPS = 2e-6  # what another order of sums changes in weights around 1 in ten steps
HALF_PRECISION = {"bf16": 2e-2, "fp16": 2e-3}


@pytest.fixture(scope="module")
def alone(pools: Pools, tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The weights of one process, with one bucket."""
    folder = str(tmp_path_factory.mktemp("alone"))
    weights: list[float] = pools.of(1).ask(gradient_ranks.train, (1,), STEPS, folder, {"buckets": "one"})[0]
    return weights


def trained(pools: Pools, grid: tuple[int, ...], folder: Path, sync: dict[str, Any]) -> list[float]:
    answers = pools.of(math.prod(grid)).ask(gradient_ranks.train, grid, STEPS, str(folder), sync)
    assert all(answer == answers[0] for answer in answers), f"ranks differ in bits with {sync}"
    weights: list[float] = answers[0]
    return weights


@pytest.mark.parametrize("grid", [(2, 1), (2, 2), (4,)], ids=str)
@pytest.mark.parametrize("sync", [*REDUCED_ALIKE, *OTHERS], ids=lambda sync: "-".join(map(str, sync.values())))
def test_training_gives_the_weights_of_one_process(
    pools: Pools, alone: list[float], tmp_path: Path, grid: tuple[int, ...], sync: dict[str, Any]
) -> None:
    assert trained(pools, grid, tmp_path, sync) == pytest.approx(alone, abs=ULPS)


def test_torchs_ddp_gives_the_weights_of_one_process(pools: Pools, alone: list[float], tmp_path: Path) -> None:
    assert trained(pools, (2, 1), tmp_path, {"all_reduce": "ddp"}) == pytest.approx(alone, abs=ULPS)


@pytest.mark.parametrize("wire", HALF_PRECISION)
def test_gradients_in_half_precision_give_nearly_those_weights(
    pools: Pools, alone: list[float], tmp_path: Path, wire: str
) -> None:
    sync = {"wire": wire, "buckets": "fujitsu"}
    assert trained(pools, (2, 2), tmp_path, sync) == pytest.approx(alone, abs=HALF_PRECISION[wire])


@pytest.mark.parametrize("grid", [(1,), (2, 1)], ids=str)
def test_every_plan_gives_the_same_bits_where_sums_have_no_order(
    pools: Pools, tmp_path: Path, grid: tuple[int, ...]
) -> None:
    one, *others = [trained(pools, grid, tmp_path, {"buckets": buckets}) for buckets in ("one", *BUCKETS)]
    assert all(other == one for other in others), "the sum of one or two numbers is the same in any order"


@pytest.mark.parametrize("wire", ["fp32", "bf16"])
@pytest.mark.parametrize("counts", [(3,), (1, 2), (1, 1, 1)], ids=str)
def test_two_backward_passes_with_statistics_loss_and_stop(pools: Pools, counts: tuple[int, ...], wire: str) -> None:
    answers = pools.of(4).ask(gradient_ranks.average, (2, 2), counts, wire, 3)
    near = (2e-2, 1e-2) if wire == "bf16" else (1e-4, 1e-4)
    mean = [sum(values) / 4 for values in zip(*(answer["own"] for answer in answers), strict=True)]
    for answer in answers:
        assert answer["mean"] == pytest.approx(mean, rel=near[0], abs=near[1])
        assert answer["mean"][-10:] == pytest.approx(mean[-10:], rel=1e-6), "running statistics travel in fp32"
        assert answer["loss"] == pytest.approx(1.5), "the loss is not the ranks' mean"
        assert answer["stop"], "one rank asked for a stop and not all have heard"
        assert answer["arrived"] == list(counts) and answer["frozen"]


def test_no_rank_stops_without_a_request(pools: Pools) -> None:
    assert not any(answer["stop"] for answer in pools.of(4).ask(gradient_ranks.average, (4,), (3,), "fp32", -1))


def test_buckets_start_while_backward_runs(pools: Pools) -> None:
    for events in pools.of(2).ask(gradient_ranks.order_of_events, (3, 2, 1, 0), (1, 2, 1)):
        assert events == [
            "gradient 3", "start", "gradient 2", "gradient 1", "start", "gradient 0", "start",
            "end of backward", "arrived", "arrived", "arrived",
        ]  # fmt: skip


def test_a_training_that_is_gone_leaves_no_thread(tmp_path: Path) -> None:
    pool = RankPool(2)  # of its own: others have threads
    try:
        for threads, left in pool.ask(gradient_ranks.left, (2,), str(tmp_path)):
            assert threads and not left, "threads keep the connections of a training that is over"
    finally:
        pool.close()


def test_a_bucket_that_is_complete_early_waits_for_those_before_it(pools: Pools) -> None:
    for events in pools.of(2).ask(gradient_ranks.order_of_events, (1, 3, 2, 0), (1, 1, 2)):
        assert events[:6] == ["gradient 3", "gradient 2", "gradient 1", "start", "start", "gradient 0"]


@pytest.mark.parametrize("buckets", ["one", "fujitsu"])
def test_a_parameter_without_a_gradient_is_named(pools: Pools, tmp_path: Path, buckets: str) -> None:
    told = pools.of(2).ask(gradient_ranks.train, (2, 1), 1, str(tmp_path), {"buckets": buckets}, None)
    for rank, text in enumerate(told):
        assert text.startswith(f"rank {rank}: no gradient came for branch.weight, branch.bias: ")


def test_sparse_gradients_are_averaged_too(pools: Pools) -> None:
    half, none = [0.5, 0.5], [0.0, 0.0]
    assert pools.of(2).ask(gradient_ranks.of_a_table) == [[half, half, none, none]] * 2


ONE_RANK_SKIPS = """
import os
from torch import nn
from torusrun.training.models import residual


class Skips(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner, self.skipped = inner, nn.Linear(1, 1)

    def forward(self, images):
        logits = self.inner(images)
        return logits if os.environ["RANK"] == "1" else logits + self.skipped(images.mean((1, 2, 3))[:, None])


def build(classes, shape, seed):
    return Skips(residual.build_digits(classes=classes, shape=shape, seed=seed))
"""


def test_nobody_hangs_where_one_rank_has_no_gradient(tmp_path: Path) -> None:
    (tmp_path / "skips.py").write_text(ONE_RANK_SKIPS)
    with launched(config(tmp_path, (2, 1), model=ModelKeys("skips:build"))) as launch:
        assert launch.codes() == [69, 1], "rank 1 fails, the other is cut off by it"
    assert "rank 1: no gradient came for skipped.weight, skipped.bias" in launch.stderr_text


def test_a_resumed_attempt_takes_the_plan_of_the_first_after_the_same_step(pools: Pools, tmp_path: Path) -> None:
    path = tmp_path / "buckets.json"
    pools.of(4).ask(gradient_ranks.train, (4,), STEPS, str(tmp_path), {"buckets": "exact"})
    kept = json.loads(path.read_text())
    assert kept["after_step"] == 6 and len(kept["ready_s"]) == len(kept["order"]) == sum(kept["buckets"]) == 8

    def resumed(at: int, **changed: Any) -> dict[str, list[float]]:
        path.write_text(json.dumps({**kept, "order": [7, 6, 5, 4, 3, 1, 2, 0], "buckets": [3, 3, 2], **changed}))
        answers = pools.of(4).ask(gradient_ranks.resumed, (4,), str(tmp_path), at, STEPS)
        assert all(answer == answers[0] for answer in answers)
        answer: dict[str, list[float]] = answers[0]
        return answer

    for at in (2, 8):
        found = resumed(at)
        assert found["resumed"] == found["undisturbed"]
    assert resumed(2, after_step=0)["undisturbed"] != found["undisturbed"], "or this test would see no difference"


def test_a_plan_that_cannot_be_read_or_is_for_other_ranks_is_made_again(pools: Pools, tmp_path: Path) -> None:
    path = tmp_path / "buckets.json"
    for text in ("{", "[1]", json.dumps({"schema": 1, "made_for": {"grid": [9]}})):
        path.write_text(text)
        pools.of(2).ask(gradient_ranks.train, (2, 1), STEPS, str(tmp_path), {"buckets": "exact"})
        assert json.loads(path.read_text())["made_for"]["grid"] == [2, 1]


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
