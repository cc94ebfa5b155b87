"""Checks whether all ranks hold the same weights, by comparing 8 bytes of each rank."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

import torch
from torch import Tensor

from torusrun.training.meeting.agree import everyones

BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
PRIME = 1_000_003  # swapped tensors change the sum


def differing(tensors: Iterable[Tensor]) -> list[int]:
    """The ranks whose bits differ from those of most ranks, or from rank 0's if there is no majority.

    All ranks call it together, with the same tensors in the same order, and get the same answer. Waits for the device.
    """
    sums = everyones(checksum(tensors)).tolist()
    most, count = Counter(sums).most_common(1)[0]
    right = most if 2 * count > len(sums) else sums[0]
    return [rank for rank, found in enumerate(sums) if found != right]


def checksum(tensors: Iterable[Tensor]) -> Tensor:
    """A checksum [] (int64) of the bits of `tensors`, on their device; nothing of their size is copied."""
    total: Tensor | None = None
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(-1).view(BITS[tensor.element_size()]).sum(dtype=torch.int64)
        total = bits if total is None else total * PRIME + bits
    if total is None:
        raise ValueError("there are no tensors to compare")
    return total
