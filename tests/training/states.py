"""States of a training: any, saved, and compared bit by bit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any

import torch
from torch import Tensor

from torusrun.training.checkpoint.manifest import STATE
from torusrun.training.checkpoint.snapshot import Snapshot
from torusrun.training.checkpoint.store import CheckpointFolder
from torusrun.training.checkpoint.writer import Writer
from torusrun.training.progress import Progress

DTYPES = [torch.float32, torch.int64, torch.float16, torch.bool, torch.complex64, torch.uint8, torch.bfloat16]


def any_tensor(chance: Random) -> Tensor:
    shape = [chance.randrange(4) for _ in range(chance.randrange(5))]
    made = torch.randint(0, 100, shape).to(chance.choice(DTYPES))
    if made.ndim == 4 and chance.random() < 0.5:
        return made.to(memory_format=torch.channels_last)
    if made.ndim > 1 and chance.random() < 0.5:
        return made.transpose(0, 1)
    return made[1:] if made.ndim and len(made) and chance.random() < 0.3 else made


def any_state(chance: Random, depth: int = 0) -> Any:
    kind = chance.randrange(4 if depth < 3 else 1)
    if kind == 1:
        return OrderedDict((f"name{n}", any_state(chance, depth + 1)) for n in range(chance.randrange(4)))
    if kind == 2:
        return [any_state(chance, depth + 1) for _ in range(chance.randrange(4))]
    if kind == 3:
        return chance.choice([chance.random(), None, "word", (1, any_tensor(chance)), True, 2**70])
    return any_tensor(chance)


def saved(folder: CheckpointFolder, state: dict[str, Any], progress: Progress, epoch: float) -> str:
    """Write a checkpoint at once; its name."""
    snapshot, writer = Snapshot(), Writer()
    order = replace(folder.order(progress, epoch), files={STATE: snapshot.take(state)})
    writer.begin(order, snapshot.descriptor)
    done = writer.finished(wait=True)
    assert done and not done.error, done
    folder.written(order, done.files)
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
