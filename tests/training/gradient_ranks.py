"""What ranks of a RankPool do to have their gradients averaged: the tasks of test_training_gradients.py."""

from __future__ import annotations

import gc
import threading
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from states import flat
from torch import Tensor, nn
from training_runs import TRAIN, config

from torusrun.training.collectives import all_reduce
from torusrun.training.config import Config, Ranks
from torusrun.training.learner import Learner
from torusrun.training.optim.sgd import SGD
from torusrun.training.parts import Parts
from torusrun.training.recipe.protocols import DataSet
from torusrun.training.recipe.reading import record
from torusrun.training.recipe.train import SyncKeys
from torusrun.training.schedule import Course
from torusrun.training.sync.gradients import Gradients, MissingGradient
from torusrun.training.sync.plans import Layout

SAMPLES, BATCH = 96, 24


class Points(DataSet):
    """Vectors of random numbers, and classes that follow from them."""

    train_samples, test_samples, classes, shape = SAMPLES, 1, 3, (5,)

    def __init__(self) -> None:
        generator = torch.Generator().manual_seed(7)
        self._inputs = torch.randn(SAMPLES, 5, generator=generator)
        self._labels = self._inputs[:, :3].argmax(1)

    def train_batch(self, samples: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
        numbers = torch.tensor([sample for _, sample in samples])
        return self._inputs[numbers], self._labels[numbers]

    def test_shard(self, rank: int, world: int) -> tuple[Tensor, Tensor]:
        return self._inputs[:0], self._labels[:0]


class Network(nn.Module):
    """Some layers, and a branch that only rank `branch` computes (-1: every rank, None: none)."""

    def __init__(self, rank: int, branch: int | None = -1) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(5, 40), nn.Tanh(), nn.Linear(40, 30), nn.Tanh(), nn.Linear(30, 3))
        self.branch = nn.Linear(5, 3)
        self.on = branch in (rank, -1)

    def forward(self, inputs: Tensor) -> Tensor:
        logits: Tensor = self.layers(inputs)
        return logits + self.branch(inputs) if self.on else logits


def settings(rank: int, folder: str, **changes: Any) -> tuple[Config, Ranks]:
    world = torch.distributed.get_world_size()
    read = record(Config, config(Path(folder), (world, 1)))
    return replace(read, train=replace(TRAIN, **{"batch": BATCH, **changes})), Ranks(rank, world, rank)


def of(settings: Config, ranks: Ranks, data: Points, model: nn.Module) -> Learner:
    course = Course(settings.train, data.train_samples, lambda moment: 0.1)
    return Learner(settings, ranks, torch.device("cpu"), Parts(data, model, SGD(model, 0.9, 1e-4), course))


def learner(
    rank: int,
    grid: tuple[int, ...],
    folder: str,
    branch: int | None = -1,
    changes: dict[str, Any] | None = None,
    **sync: Any,
) -> Learner:
    read, ranks = settings(rank, folder, sync=SyncKeys(**sync), **(changes or {}))
    made = of(replace(read, grid=grid), ranks, Points(), Network(rank, branch))
    reduce = getattr(made.steps._sync, "all_reduce", None)
    if isinstance(reduce, all_reduce.BySize):  # so that some of these buckets are long
        reduce._spans = tuple(replace(span, from_bytes=min(span.from_bytes, 200)) for span in reduce._spans)
    return made


def train(
    rank: int, grid: tuple[int, ...], steps: int, folder: str, sync: dict[str, Any], branch: int | None = -1
) -> Any:
    """The weights after some steps; or what MissingGradient says."""
    one = learner(rank, grid, folder, branch, **sync)
    try:
        for _ in range(steps):
            one.step(stop=False)
    except MissingGradient as error:
        return str(error)
    return weights(one)


def left(rank: int, grid: tuple[int, ...], folder: str) -> tuple[int, list[str]]:
    """(threads that carry gradients while a training is there, the names of those that its end leaves)."""
    one = learner(rank, grid, folder, buckets="fujitsu")
    one.step(stop=False)
    carriers = [thread for thread in threading.enumerate() if thread.name == "all-reduce"]
    del one
    gc.collect()
    for thread in carriers:
        thread.join(600)
    return len(carriers), [thread.name for thread in carriers if thread.is_alive()]


def resumed(rank: int, grid: tuple[int, ...], folder: str, at: int, steps: int) -> dict[str, list[float]]:
    """The weights of an undisturbed training with the exact plan, and of one that was resumed `at` a step."""
    undisturbed = learner(rank, grid, folder, buckets="exact")
    for step in range(steps):
        if step == at:
            state = deepcopy(undisturbed.state())
        undisturbed.step(stop=False)
    other = learner(rank, grid, folder, buckets="exact")
    other.restore(state)
    for _ in range(steps - at):
        other.step(stop=False)
    return {"undisturbed": weights(undisturbed), "resumed": weights(other)}


def weights(one: Learner) -> list[float]:
    return flat(one.model.parameters())


def average(rank: int, grid: tuple[int, ...], counts: tuple[int, ...], wire: Any, stopping_rank: int) -> dict[str, Any]:
    """Two backward passes through a batch-normalized layer, with data of its own on each rank, then the average."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))
    model[0].bias.requires_grad_(False)
    reduce = all_reduce.build("torus", grid, wire)
    apart = None if wire == "fp32" else all_reduce.build("flat", grid)
    gradients = Gradients(model, reduce, apart=apart)
    gradients.lay_out(Layout((2, 1, 0), counts))
    inputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(rank))
    learning = [parameter for parameter in model.parameters() if parameter.requires_grad]
    gradients.clear()
    losses = [model(inputs).square().sum() for _ in range(2)]
    alone = [torch.autograd.grad(loss, learning, retain_graph=True) for loss in losses]
    losses[0].backward()
    statistics = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
    own = flat([*(sum(pair) for pair in zip(*alone, strict=True)), *statistics])
    gradients.begin(torch.tensor(float(rank)), rank == stopping_rank)
    losses[1].backward()
    arrived = [len(parameters) for parameters in gradients.arriving()]
    loss, stop = gradients.numbers().tolist()
    mean = flat([*(parameter.grad for parameter in learning), *statistics])
    return {
        "own": own,
        "mean": mean,
        "arrived": arrived,
        "loss": loss,
        "stop": stop > 0,
        "frozen": model[0].bias.grad is None,
    }


def of_a_table(rank: int) -> Any:
    """The mean of sparse gradients: each rank looks up one row."""
    table = nn.Embedding(4, 2, sparse=True)
    gradients = Gradients(table, all_reduce.build("flat", (torch.distributed.get_world_size(),)))
    gradients.clear()
    loss = table(torch.tensor([rank])).sum()
    gradients.begin(loss, False)
    loss.backward()
    assert table.weight.grad is not None and table.weight.grad.is_sparse
    assert [len(parameters) for parameters in gradients.arriving()] == [1]
    return table.weight.grad.tolist()


def order_of_events(rank: int, order: tuple[int, ...], counts: tuple[int, ...]) -> list[str]:
    """What happens in a backward pass: 'gradient N' and 'start'."""
    model = nn.Sequential(*[nn.Linear(4, 4, bias=False) for _ in range(len(order))])
    events: list[str] = []
    reduce = all_reduce.build("torus", (torch.distributed.get_world_size(),))
    start = reduce.start

    def told(vector: Tensor) -> Any:
        events.append("start")
        return start(vector)

    for number, parameter in enumerate(model.parameters()):
        parameter.register_post_accumulate_grad_hook(lambda _, number=number: events.append(f"gradient {number}"))
    reduce.start = told  # type: ignore[method-assign]
    gradients = Gradients(model, reduce)
    gradients.lay_out(Layout(order, counts))
    loss = model(torch.ones(2, 4)).sum()
    gradients.begin(loss, False)
    loss.backward()
    events.append("end of backward")
    for _ in gradients.arriving():
        events.append("arrived")
    return events
