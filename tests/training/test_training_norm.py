"""Batch normalization over groups of ranks and with the statistics of the last batch: against one process alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import norm_ranks
import pytest
import torch
from torch import nn
from torus_ranks import RankPool

from torusrun.training.config import Ranks
from torusrun.training.norm import convert, travelling
from torusrun.training.recipe.reading import ConfigError
from torusrun.training.recipe.train import NormKeys
from torusrun.training.sync.gradients import Extras

RANKS, GROUP, STEPS = 4, 2, 6
LOSS_AND_STOP = 2
SUMS = 2e-6  # what another order of sums changes
ALONE = Ranks(0, 1, 0)


def test_two_groups_of_two_ranks_are_two_processes_with_the_whole_batch_of_each(four: RankPool) -> None:
    answers = four.ask(norm_ranks.grouped, GROUP)
    for first in range(0, RANKS, GROUP):
        ours = answers[first : first + GROUP]
        for number, shape in enumerate(norm_ranks.SHAPES):
            whole = torch.cat([norm_ranks.inputs(rank, shape) for rank in range(first, first + GROUP)])
            alone = norm_ranks.passed(norm_ranks.layer(shape), whole)
            found = [each[number] for each in ours]
            for name in ("output", "inputs"):
                together = [value for each in found for value in each[name]]
                assert together == pytest.approx(alone[name], rel=1e-3, abs=2e-3), f"{name} of {shape}"
            for name in ("weight", "bias"):
                total = [sum(values) for values in zip(*(each[name] for each in found), strict=True)]
                assert total == pytest.approx(alone[name], rel=1e-3, abs=2e-3), f"gradient of {name} of {shape}"
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                for each in found:
                    assert each[name] == pytest.approx(alone[name], rel=1e-5), f"{name} of {shape}"


@pytest.mark.parametrize("sync", [{}, {"buckets": "fujitsu"}, {"all_reduce": "ddp"}], ids=str)
def test_a_training_over_all_ranks_is_that_of_one_process(four: RankPool, tmp_path: Path, sync: dict[str, Any]) -> None:
    answers = four.ask(norm_ranks.trained, str(tmp_path), STEPS, {"ranks": RANKS}, sync)
    assert all(answer == answers[0] for answer in answers), "ranks must hold the same bits"
    alone = norm_ranks.trained_alone(STEPS)
    for name in alone:
        assert answers[0][name] == pytest.approx(alone[name], abs=SUMS)
    apart = four.ask(norm_ranks.trained, str(tmp_path), STEPS, {}, sync)[0]
    assert apart["weights"] != pytest.approx(alone["weights"], abs=100 * SUMS), "or this test would see no difference"


def test_evaluation_asks_no_other_rank(four: RankPool, tmp_path: Path) -> None:
    assert four.ask(norm_ranks.silent_evaluation, str(tmp_path)) == [True] * RANKS


@pytest.mark.parametrize("sync", [{}, {"all_reduce": "ddp"}, {"buckets": "fujitsu", "wire": "bf16"}], ids=str)
def test_of_the_last_batchs_statistics_nothing_travels_with_the_gradients(
    four: RankPool, tmp_path: Path, sync: dict[str, Any]
) -> None:
    statistics = 2 * 16
    for kind, numbers in (("last", LOSS_AND_STOP), ("moving", statistics + LOSS_AND_STOP)):
        assert four.ask(norm_ranks.numbers_on_the_way, str(tmp_path), kind, sync) == [numbers] * RANKS, kind


def test_the_last_batchs_statistics_are_averaged_when_they_are_needed_and_change_nothing_later(
    four: RankPool, tmp_path: Path
) -> None:
    answers = four.ask(norm_ranks.last_statistics, str(tmp_path), STEPS)
    own = [answer["own"] for answer in answers]
    assert len({tuple(each) for each in own}) == RANKS, "between evaluations each rank has those of its own batch"
    mean = torch.tensor(own, dtype=torch.float64).mean(0).float().double().tolist()
    for answer in answers:
        assert answer["mean"] == mean and answer["again"] == mean
        averaged, never, resumed = answer["after"]
        assert averaged == never, "whoever averages in between must train as if he had not"
        assert resumed == never, "a resumed training must have the bits of an undisturbed one"


def test_branches_with_the_last_batchs_statistics_resume_at_any_step_with_the_same_bits(
    four: RankPool, tmp_path: Path
) -> None:
    """Also where the training that is resumed has been evaluated after every step, and the other has not."""
    answers = four.ask(norm_ranks.branching, str(tmp_path))
    evaluations = answers[0]["evaluations"]
    assert len(evaluations) == 14, "two epochs of 4 steps, and two of 3 with a larger batch"
    for answer in answers:
        assert answer == {"evaluations": evaluations, "same": [True] * 14, "members": 2}
    assert [len(row.get("members", ())) for row in evaluations] == [0] * 7 + [1] * 6 + [2]
    assert "ensemble" not in evaluations[6] and evaluations[7]["ensemble"] == evaluations[7]["best_member"]
    assert evaluations[-1]["accuracy"] == evaluations[-1]["members"][-1], "the last branch is what the training is"


def test_buffers_that_are_not_statistics_are_still_sent() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2))
    model[0].register_buffer("average", torch.zeros(2))
    assert [tensor is model[0].average for tensor in travelling(model, NormKeys(statistics="last"))] == [True]
    assert len(travelling(model, NormKeys())) == 3


def test_buffers_that_no_rank_changed_keep_their_bits_and_the_others_get_the_mean() -> None:
    """The mean of three ranks, computed in fp32 as they do: that of equal numbers is not always the number."""
    ranks, extras = [nn.Sequential(nn.BatchNorm1d(2), nn.Linear(2, 2)) for _ in range(3)], []
    fixed = torch.cat([torch.linspace(0.5, 1, 999), torch.tensor([-torch.inf, -0.0])])
    for rank in ranks:
        rank.register_buffer("fixed", fixed.clone())
        rank.register_buffer("exact", torch.tensor(1 / 3, dtype=torch.float64))
        rank.register_buffer("moving", torch.tensor([1 / 3, 1.0], dtype=torch.float64))
        rank.register_buffer("now_and_then", torch.tensor(2.0))
        extras.append(Extras(rank))
        extras[-1].lay([torch.zeros_like(tensor, dtype=torch.float32) for tensor in extras[-1].like])
        extras[-1].hold()
    for number, rank in enumerate(ranks):
        rank.moving += number * torch.tensor([2.0**-40, 0.0], dtype=torch.float64)
        rank[0].running_mean.fill_(number)
        extras[number].put(torch.tensor(float(number)), stop=number == 1)
    ranks[2].now_and_then.fill_(5.0)
    extras[2].put(torch.tensor(2.0), stop=False)
    means = [sum(views) / 3 for views in zip(*(each._views for each in extras), strict=True)]
    assert not torch.equal(sum([fixed] * 3) / 3, fixed), "otherwise this shows nothing"
    for rank, each in zip(ranks, extras, strict=True):
        each.lay(means)
        each.take()
        assert rank.fixed.numpy().tobytes() == fixed.numpy().tobytes() and rank.exact.item() == 1 / 3
        assert rank.moving.tolist() == [1 / 3 + 2.0**-40, 1.0], "fp32 would lose the difference"
        assert rank.now_and_then == 3.0 and rank[0].running_mean.tolist() == [1.0, 1.0]
        assert each.numbers().tolist() == pytest.approx([1.0, 1 / 3])


def test_the_last_batch_replaces_what_was_there_bit_by_bit() -> None:
    fresh, used = nn.BatchNorm1d(5), nn.BatchNorm1d(5)
    convert(nn.ModuleList([fresh, used]), NormKeys(statistics="last"), ALONE)
    used(1e6 * torch.randn(9, 5))
    batch = torch.randn(9, 5)
    fresh(batch), used(batch)
    assert torch.equal(fresh.running_mean, used.running_mean) and torch.equal(fresh.running_var, used.running_var)
    assert torch.allclose(fresh.running_var, batch.var(0)) and torch.allclose(fresh.running_mean, batch.mean(0))


def test_momentum_and_eps_are_those_of_the_recipe_or_the_models_own() -> None:
    model = nn.Sequential(nn.Linear(2, 2), nn.BatchNorm1d(2, eps=1e-3, momentum=0.2))
    norms = convert(model, NormKeys(), ALONE)
    common = {"layers": 1, "statistics": "moving", "ranks": 1}
    assert norms.facts() == {**common, "momentum": 0.2, "eps": 1e-3}
    norms = convert(model, NormKeys(momentum=0.05, eps=2e-5), ALONE)
    assert norms.facts() == {**common, "momentum": 0.05, "eps": 2e-5}


def test_a_model_without_batch_normalization_takes_no_norm_keys() -> None:
    with pytest.raises(ConfigError, match="the model has no batch normalization"):
        convert(nn.Linear(2, 2), NormKeys(eps=1e-3), ALONE)
    assert convert(nn.Linear(2, 2), NormKeys(), ALONE).facts()["layers"] == 0
