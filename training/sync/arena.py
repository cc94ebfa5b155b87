"""Adjacent tensors in one flat vector."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor


class Arena:
    """A zeroed 1-D `vector` of at least `length` elements; `views[i]` is the part of it shaped as `like[i]`.

    `views[i]` begins at `offsets[i]`; padding follows the last view. The vector is on the device of `like`, with the
    dtype of `like` unless another is given. A view keeps the memory format of its tensor.
    """

    def __init__(self, like: Sequence[Tensor], length: int = 0, dtype: torch.dtype | None = None) -> None:
        sizes = [tensor.numel() for tensor in like]
        *offsets, used = accumulate(sizes, initial=0)
        self.offsets, self.used = tuple(offsets), used
        self.vector = torch.zeros(max(used, length), device=like[0].device, dtype=dtype or like[0].dtype)
        pieces = torch.split(self.vector[:used], sizes)
        self.views = [_shaped(piece, tensor) for piece, tensor in zip(pieces, like, strict=True)]


def _shaped(piece: Tensor, like: Tensor) -> Tensor:
    if like.ndim == 4 and like.is_contiguous(memory_format=torch.channels_last):
        return piece.as_strided(like.size(), like.stride(), piece.storage_offset())
    return piece.view_as(like)
