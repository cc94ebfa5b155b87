"""What ranks of a RankPool do to take steps: the tasks of test_training_steps.py."""

from __future__ import annotations

from typing import Any

import torch
from gradient_ranks import BATCH, Network, Points, learner
from states import flat
from torch.nn import functional
from training_runs import TRAIN

from torusrun.training.data import order
from torusrun.training.optim.sgd import SGD


def trained(
    rank: int, grid: tuple[int, ...], steps: int, folder: str, changes: dict[str, Any], sync: dict[str, Any]
) -> dict[str, Any]:
    """What a rank holds after at least so many steps."""
    one = learner(rank, grid, folder, changes=changes, **sync)
    while one.progress.steps < steps:
        one.step(stop=False)
    state = one.state()
    return {
        "weights": flat(one.model.parameters()),
        "velocities": flat(state["optimizer"].values()),
        "loss": one.mean_loss,
        "steps": one.progress.steps,
        "scale": state.get("loss_scale"),
    }


def stopping(rank: int, grid: tuple[int, ...], folder: str, sync: dict[str, Any]) -> list[bool]:
    """What two steps say, in the second of which the last rank wants to stop."""
    one = learner(rank, grid, folder, **sync)
    return [one.step(stop=False), one.step(stop=rank == torch.distributed.get_world_size() - 1)]


def overflowing(rank: int, grid: tuple[int, ...], folder: str) -> dict[str, Any]:
    """A step in fp16 in which rank 1 alone gets a number that is not finite, and what became of the weights."""
    one = learner(rank, grid, folder, changes={"precision": "fp16"})
    before = flat(one.model.parameters())
    if rank == 1:
        next(one.model.parameters()).register_hook(lambda gradient: gradient * float("inf"))
    one.step(stop=False)
    return {"same": flat(one.model.parameters()) == before, "scale": one.loss_scale}


def local_sgd(ranks: int, steps: int, every: int) -> list[float]:
    """Local SGD by plain torch in one process: the weights after `steps` steps."""
    models = [Network(rank) for rank in range(ranks)]
    optimizers = [SGD(model, 0.9, 1e-4) for model in models]
    data = Points()
    for step in range(1, steps + 1):
        for rank, (model, optimizer) in enumerate(zip(models, optimizers, strict=True)):
            samples = order.rank_batch(
                (step - 1) * BATCH, batch=BATCH, rank=rank, world=ranks, samples=data.train_samples, seed=TRAIN.seed
            )
            inputs, labels = data.train_batch(samples)
            model.zero_grad()
            functional.cross_entropy(model(inputs), labels, label_smoothing=TRAIN.label_smoothing).backward()
            optimizer.step(0.1)
        if step % every == 0:
            held = [
                [*model.parameters(), *opt.state_dict().values()] for model, opt in zip(models, optimizers, strict=True)
            ]
            with torch.no_grad():
                for tensors in zip(*held, strict=True):
                    mean = torch.stack([tensor.detach() for tensor in tensors]).mean(0)
                    for tensor in tensors:
                        tensor.copy_(mean)
    return flat(models[0].parameters())
