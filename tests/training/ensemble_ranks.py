"""What ranks of a RankPool do to evaluate: the tasks of test_training_evaluation.py."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn

from torusrun.training.evaluation import evaluate
from torusrun.training.parts import check_alike
from torusrun.training.recipe.protocols import DataSet, complete
from torusrun.training.recipe.reading import ConfigError

CPU = torch.device("cpu")


class Linear(nn.Module):
    """A layer of 4 inputs and 7 classes, with batch normalization, from a seed."""

    def __init__(self, seed: int, classes: int = 7) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.layers = nn.Sequential(nn.BatchNorm1d(4), nn.Linear(4, classes))
        self.layers[0].running_mean.uniform_(-1, 1)
        self.layers[0].running_var.uniform_(0.5, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)  # type: ignore[no-any-return]


def samples(count: int, classes: int = 7) -> tuple[Tensor, Tensor]:
    """Inputs and labels that no model knows."""
    draw = torch.Generator().manual_seed(11)
    return torch.randn(count, 4, generator=draw), torch.randint(classes, (count,), generator=draw)


def refused(rank: int, facts: list[tuple[Any, ...]]) -> str:
    """What is said where rank r found a data set of the numbers, and of the identity, facts[r]."""
    names = "train_samples", "test_samples", "classes", "identity"
    found = complete(SimpleNamespace(**dict(zip(names, facts[rank], strict=False))), DataSet)
    try:
        check_alike(found, CPU)
    except ConfigError as error:
        return str(error)
    return ""


def evaluated(rank: int, shards: list[list[int]], seeds: list[int], classes: int = 7) -> Any:
    """The scores of a model and of members, where rank r brings batches of the sizes shards[r], one after the other."""
    inputs, labels = samples(sum(map(sum, shards)), classes)
    at = sum(map(sum, shards[:rank]))
    batches = []
    for size in shards[rank]:
        batches.append((inputs[at : at + size], labels[at : at + size]))
        at += size
    model = Linear(0, classes)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = evaluate(model, iter(batches), CPU, classes, [Linear(seed, classes).state_dict() for seed in seeds])
    same = all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
    return found, same and model.training
