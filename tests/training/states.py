"""States of a training, compared bit by bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor

from training.checkpoint.snapshot import Snapshot
from training.checkpoint.store import CheckpointFolder
from training.checkpoint.writer import Writer
from training.progress import Progress


def saved(folder: CheckpointFolder, state: dict[str, Any], progress: Progress, epoch: float) -> str:
    """Write a checkpoint at once; its name."""
    snapshot, writer = Snapshot(), Writer()
    order = folder.order(progress, epoch, snapshot.take(state))
    writer.begin(order, snapshot.descriptor)
    done = writer.finished(wait=True)
    assert done and not done.error, done
    folder.written(order, done.sha256)
    return order.name


def differing(one: Any, other: Any, at: str = "state") -> list[str]:
    """Where two states differ: nested dicts and lists of tensors and plain values."""
    if isinstance(one, Tensor):
        return [] if torch.equal(one, other) else [at]
    if isinstance(one, (list, tuple)):
        one, other = dict(enumerate(one)), dict(enumerate(other))
    if isinstance(one, dict):
        if one.keys() != other.keys():
            return [at]
        return [found for key in one for found in differing(one[key], other[key], f"{at}.{key}")]
    return [] if one == other else [at]


def flat(tensors: Iterable[Tensor]) -> list[float]:
    """All their numbers."""
    numbers: list[float] = torch.cat([tensor.detach().double().flatten() for tensor in tensors]).tolist()
    return numbers
