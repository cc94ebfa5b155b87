"""What ranks of a RankPool do to take steps: the tasks of test_training_steps.py."""

from __future__ import annotations

from typing import Any

import torch
from gradient_ranks import learner
from states import flat


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
