"""Scores on uneven shards, and those of an ensemble: against plain torch in one process."""

from __future__ import annotations

import math

import ensemble_ranks
import pytest
import torch
from ensemble_ranks import Linear, samples
from torch import Tensor
from torch.nn import functional
from torus_ranks import RankPool


def score(logits: Tensor, labels: Tensor) -> tuple[float, float, float]:
    likeliest = logits.argsort(dim=1, descending=True)
    right = [label in row[:1] for row, label in zip(likeliest.tolist(), labels.tolist(), strict=True)]
    near = [label in row[:5] for row, label in zip(likeliest.tolist(), labels.tolist(), strict=True)]
    return sum(right) / len(right), sum(near) / len(near), float(functional.cross_entropy(logits.double(), labels))


def outputs(seed: int, inputs: Tensor) -> Tensor:
    with torch.no_grad():
        return Linear(seed).eval()(inputs)  # type: ignore[no-any-return]


SHARDS = [[[0], [1], [50]], [[], [40], [3, 0, 1, 30]], [[17], [17], [17]], [[1], [], []]]


@pytest.mark.parametrize("shards", SHARDS, ids=str)
def test_counts_are_exact_on_uneven_shards(three: RankPool, shards: list[list[int]]) -> None:
    """Ranks bring shards of no, one and many samples, in different numbers of batches, and empty batches."""
    inputs, labels = samples(sum(map(sum, shards)))
    accuracy, top5, loss = score(outputs(0, inputs), labels)
    for found, unchanged in three.ask(ensemble_ranks.evaluated, shards, []):
        assert unchanged, "an evaluation must leave the model as it was, in training mode"
        assert (found.model.accuracy, found.model.top5) == (accuracy, top5)
        assert found.model.loss == pytest.approx(loss, rel=1e-6)
        assert found.members == () and found.ensemble is None


@pytest.mark.parametrize("shards", SHARDS[1:3], ids=str)
def test_an_ensemble_is_the_mean_of_its_members_softmax_outputs(three: RankPool, shards: list[list[int]]) -> None:
    inputs, labels = samples(sum(map(sum, shards)))
    each = [outputs(seed, inputs) for seed in (1, 2, 3)]
    mean = torch.stack([functional.softmax(logits.double(), dim=1) for logits in each]).mean(0)
    wanted = [score(logits, labels) for logits in (outputs(0, inputs), *each, mean.log())]
    for found, unchanged in three.ask(ensemble_ranks.evaluated, shards, [1, 2, 3]):
        assert unchanged
        scores = [found.model, *found.members, found.ensemble]
        assert [(one.accuracy, one.top5) for one in scores] == [each[:2] for each in wanted]
        assert [one.loss for one in scores] == pytest.approx([each[2] for each in wanted], rel=1e-6)


def test_the_first_five_of_five_classes_say_nothing(three: RankPool) -> None:
    for found, _ in three.ask(ensemble_ranks.evaluated, [[4], [], [4]], [], 5):
        assert found.model.top5 is None and 0 <= found.model.accuracy <= 1


def test_without_samples_nothing_is_known(three: RankPool) -> None:
    for found, _ in three.ask(ensemble_ranks.evaluated, [[], [0], []], [1]):
        assert all(math.isnan(value) for value in (*found.model, *found.ensemble))


def test_ranks_that_find_other_data_sets_say_so_alike(three: RankPool) -> None:
    assert three.ask(ensemble_ranks.refused, [(36, 15, 3)] * 3) == [""] * 3
    said = set(three.ask(ensemble_ranks.refused, [(36, 15, 3), (36, 15, 3), (35, 15, 3)]))
    assert len(said) == 1
    assert said.pop().startswith("train.data: rank 2 found 35 samples, 15 test samples and 3 classes, and rank 0 36 sa")
    assert three.ask(ensemble_ranks.refused, [(36, 15, 3, "one")] * 3) == [""] * 3
    said = set(three.ask(ensemble_ranks.refused, [(36, 15, 3, "one"), (36, 15, 3, "other"), (36, 15, 3, "one")]))
    assert (
        len(said) == 1 and "rank 1 found 36 samples, 15 test samples and 3 classes as rank 0, and not the" in said.pop()
    )
