"""Ranks that do not hold the same weights are found by 8 bytes of each, and named."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from training_runs import config, finish, launched

from tests.waiting import until
from torusrun.training.meeting.agree import checksum
from torusrun.training.recipe.train import ModelKeys, OptimizerKeys

ODD_RANK = '''
import os
import torch
from torusrun.training.models import residual
from torusrun.training.optim import sgd

ODD = os.environ["RANK"] == "1"


def drawn_by_rank(classes, shape, seed):
    """Rank 1 draws other weights from the same seed."""
    torch.manual_seed(seed + ODD)
    return residual.build_digits(classes=classes, shape=shape, seed=seed + ODD)


class Drifting(sgd.SGD):
    """One weight of rank 1 moves by one bit in the tenth step."""

    steps = 0

    @torch.no_grad()
    def step(self, rate):
        super().step(rate)
        self.steps += 1
        if ODD and self.steps == 10:
            weight = next(iter(self._velocity_of)).view(-1)
            weight[0] = torch.nextafter(weight[0], weight[0] + 1)


def drifting(model, train):
    return Drifting(model, train.optimizer.momentum, train.optimizer.weight_decay)
'''
THREE = {"epochs": 1, "batch": 33, "checkpoint_every_steps": 5, "log_every_steps": 1}


def test_a_rank_that_draws_other_weights_begins_with_rank_0s(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD_RANK)
    run = finish(config(tmp_path, (3, 1), model=ModelKeys("odd:drawn_by_rank"), **THREE))
    assert "rank 1 drew different weights from the seed than rank 0; all begin with rank 0's" in run.stderr_text
    assert run.events("checkpoint"), "from there on they are alike, which every checkpoint sees"


def test_a_rank_whose_weights_drift_by_one_bit_is_named_before_a_checkpoint_is_written(tmp_path: Path) -> None:
    (tmp_path / "odd.py").write_text(ODD_RANK)
    with launched(config(tmp_path, (3, 1), optimizer=OptimizerKeys("odd:drifting", lr=0.1), **THREE)) as launch:
        assert launch.codes() == [69, 1, 69], "the odd rank fails, the others are cut off by it"
    said = "after step 10 the weights of rank 1 of 3 are not those of the other ranks"
    assert all(said in log.read_text() for log in launch.logs), launch.stderr_text
    # The process that writes the checkpoint may outlive the ranks.
    until(lambda: [*tmp_path.glob("checkpoints/step-*/manifest.json")], "the last checkpoint that all ranks agree on")
    assert [path.parent.name for path in tmp_path.glob("checkpoints/step-*/manifest.json")] == ["step-00000005"]
    assert not [*tmp_path.glob("checkpoints/*step-00000010*")]


@pytest.mark.parametrize(
    "dtype", [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int64, torch.bool]
)
def test_the_checksum_sees_one_element_of_any_kind(dtype: torch.dtype) -> None:
    ones, other = torch.ones(2, 7).to(dtype), torch.ones(2, 7).to(dtype)
    other[1, 3] = 0
    assert checksum([ones]).equal(checksum([ones.clone()]))
    assert not checksum([ones]).equal(checksum([other]))
    assert not checksum([ones, other]).equal(checksum([other, ones])), "tensors that changed places"
