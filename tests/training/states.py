"""States of a training, compared bit by bit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor


def differing(one: Any, other: Any, at: str = "state") -> list[str]:
    """Where two states differ: nested dicts and lists of tensors and plain values."""
    if isinstance(one, Tensor):
        return [] if torch.equal(one, other) else [at]
    if isinstance(one, list):
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
