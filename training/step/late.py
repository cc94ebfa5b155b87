"""Numbers of a step that are read during the next step: reading them at once would wait for the device."""

from __future__ import annotations

import torch
from torch import Tensor


class Late:
    """The newest numbers that have arrived: on a CPU those of the last `put`, on a GPU those of the one before.

    All ranks must put the same numbers at the same steps; then all get the same, and may base decisions on them.
    """

    def __init__(self) -> None:
        self.values: list[float] = []
        self._coming: tuple[Tensor, torch.cuda.Event] | None = None

    def put(self, numbers: Tensor) -> None:
        """Begin to copy `numbers` [N] to `values`."""
        if numbers.device.type != "cuda":
            self.values = numbers.tolist()
            return
        if self._coming:  # the numbers of the last `put`
            before, event = self._coming
            event.synchronize()
            self.values = before.tolist()
        pinned = torch.empty(numbers.shape, dtype=numbers.dtype, pin_memory=True)
        pinned.copy_(numbers, non_blocking=True)
        event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        event.record()
        self._coming = pinned, event
