"""What ranks of a RankPool do with batch normalization: the tasks of test_training_norm.py."""

from __future__ import annotations

from collections.abc import Iterator
from copy import deepcopy
from typing import Any

import torch
from gradient_ranks import BATCH, Points, of, settings
from states import differing, flat
from torch import Tensor, nn
from torch.nn import functional
from training_runs import TRAIN

from torusrun.training.config import Ranks
from torusrun.training.data import order
from torusrun.training.learner import Learner
from torusrun.training.norm import convert, layers, running
from torusrun.training.optim.sgd import SGD
from torusrun.training.recipe.train import NormKeys, PhaseKeys, SyncKeys
from torusrun.training.sync import synchronization
from torusrun.training.sync.gradients import Gradients
from torusrun.training.sync.synchronization import DDPGradients

SHAPES = ((6, 5), (4, 3, 7), (4, 3, 6, 5))  # inputs of one rank: vectors, sequences, images
OFFSET = 1000.0  # a mean that is large against the spread: E[x^2] - E[x]^2 in float32 would be noise


def layer(shape: tuple[int, ...]) -> nn.Module:
    """Batch normalization for inputs of a shape, with a scale and a shift that show."""
    torch.manual_seed(5)
    kind = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d}[len(shape)]
    made: nn.Module = kind(shape[1], momentum=0.3)
    nn.init.uniform_(made.weight, 0.5, 2.0)  # type: ignore[arg-type]
    nn.init.uniform_(made.bias, -1.0, 1.0)  # type: ignore[arg-type]
    return made


def inputs(rank: int, shape: tuple[int, ...]) -> Tensor:
    """A rank's inputs, with means and spreads of its own."""
    return OFFSET + rank + (1 + rank) * torch.randn(shape, generator=torch.Generator().manual_seed(rank))


def passed(layer: nn.Module, some: Tensor) -> dict[str, list[float]]:
    """A training step's worth of a layer: what comes out, what goes back, and what it keeps."""
    some = some.clone().requires_grad_()
    output = layer(some)
    (output * torch.linspace(-1, 1, output[0].numel()).view_as(output[0]) * (some.detach() - OFFSET)).sum().backward()
    kept = {"weight": layer.weight.grad, "bias": layer.bias.grad, **dict(layer.named_buffers())}
    return {name: flat([tensor]) for name, tensor in {"output": output, "inputs": some.grad, **kept}.items()}  # type: ignore[dict-item]


def grouped(rank: int, size: int) -> list[dict[str, list[float]]]:
    """Of layers over groups of `size` ranks: one pass each."""
    made = [layer(shape) for shape in SHAPES]
    convert(nn.ModuleList(made), NormKeys(ranks=size), Ranks(rank, torch.distributed.get_world_size(), rank))
    return [passed(one, inputs(rank, shape)) for one, shape in zip(made, SHAPES, strict=True)]


class Normalized(nn.Module):
    """Two layers with batch normalization between."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.layers = nn.Sequential(nn.Linear(5, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 3))

    def forward(self, inputs: Tensor) -> Tensor:
        return self.layers(inputs)  # type: ignore[no-any-return]


class Tested(Points):
    """`Points` with 30 test samples, brought in batches: fewer to the last rank."""

    test_samples = 30

    def test_batches(self, rank: int, world: int) -> Iterator[tuple[Tensor, Tensor]]:
        numbers = range(self.test_samples)[rank::world]
        for at in range(0, len(numbers), 4 + rank):
            yield self.train_batch([(0, number) for number in numbers[at : at + 4 + rank]])


def learner(rank: int, folder: str, norm: dict[str, Any], sync: dict[str, Any], **changes: Any) -> Learner:
    """A rank that learns `Points`."""
    read, ranks = settings(rank, folder, norm=NormKeys(**norm), sync=SyncKeys(**sync), **changes)
    return of(read, ranks, Tested(), Normalized())


def trained(rank: int, folder: str, steps: int, norm: dict[str, Any], sync: dict[str, Any]) -> dict[str, Any]:
    """Weights and statistics after some steps."""
    one = learner(rank, folder, norm, sync)
    for _ in range(steps):
        one.step(stop=False)
    return {"weights": flat(one.model.parameters()), "statistics": flat(one.model.buffers())}


def trained_alone(steps: int) -> dict[str, Any]:
    """The same by plain torch in one process."""
    model, data = Normalized(), Points()
    optimizer = SGD(model, 0.9, 1e-4)
    for step in range(steps):
        samples = order.rank_batch(
            step * BATCH, batch=BATCH, rank=0, world=1, samples=data.train_samples, seed=TRAIN.seed
        )
        some, labels = data.train_batch(samples)
        model.zero_grad()
        functional.cross_entropy(model(some), labels, label_smoothing=TRAIN.label_smoothing).backward()
        optimizer.step(0.1)
    return {"weights": flat(model.parameters()), "statistics": flat(model.buffers())}


def silent_evaluation(rank: int, folder: str) -> bool:
    """Whether a forward pass in evaluation mode needs no other rank: rank 0 makes one alone."""
    one = learner(rank, folder, {"ranks": 2}, {})
    one.step(stop=False)
    one.model.eval()
    return rank > 0 or bool(one.model(torch.zeros(1, 5)).isfinite().all())


def numbers_on_the_way(rank: int, folder: str, statistics: str, sync: dict[str, Any]) -> int:
    """How many numbers are all-reduced in a step beside the gradients."""
    norm = NormKeys(statistics=statistics)  # type: ignore[arg-type]
    made, _ = synchronization.build(*settings(rank, folder, norm=norm, sync=SyncKeys(**sync)), Normalized())
    assert isinstance(made, (Gradients, DDPGradients))
    buckets = [made._bucket] if isinstance(made, DDPGradients) else made.buckets
    return sum(view.numel() for bucket in buckets for view in bucket.others)


def last_statistics(rank: int, folder: str, steps: int) -> dict[str, Any]:
    """What a rank holds before and after its statistics are averaged, once and again, and after one more step."""
    one, other = (learner(rank, folder, {"statistics": "last"}, {}) for _ in range(2))
    for _ in range(steps):
        one.step(stop=False)
        other.step(stop=False)
    held = running(layers(one.model))
    found = {"own": flat(held)}
    one.check_alike()
    found["mean"] = flat(held)
    state = deepcopy(one.state())
    one.check_alike()
    found["again"] = flat(held)
    resumed = learner(rank, folder, {"statistics": "last"}, {})
    resumed.restore(state)
    for each in (one, other, resumed):
        each.step(stop=False)
    found["after"] = [flat(each.model.state_dict().values()) for each in (one, other, resumed)]
    return found


PHASES = (
    PhaseKeys(until=1, lr=(0.1,)),
    PhaseKeys(until=2, lr=(0.1, 0.0), collapse=True),
    PhaseKeys(until=3, lr=(0.2, 0.1), batch=32),
    PhaseKeys(until=4, lr=(0.1, 0.0), collapse=True),
)


def branching(rank: int, folder: str) -> dict[str, Any]:
    """A training with two branches: its evaluations, and what it and those resumed after every step end with."""

    def start() -> Learner:
        return learner(rank, folder, {"statistics": "last"}, {}, phases=PHASES, epochs=4)

    def finish(one: Learner) -> dict[str, Any]:
        while not one.finished:
            one.step(stop=False)
        one.check_alike()
        return deepcopy(one.state())

    one, states, evaluations = start(), [], []
    while not one.finished:
        one.step(stop=False)
        one.check_alike()
        states.append(deepcopy(one.state()))
        evaluations.append(one.evaluate().row())
    ended, same = finish(start()), []
    for state in states:
        resumed = start()
        resumed.restore(state)
        same.append(not differing(finish(resumed), ended))
    return {"evaluations": evaluations, "same": same, "members": len(ended["ensemble"]["members"])}
