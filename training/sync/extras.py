"""The numbers that travel with the gradients: running statistics, the loss, and the request to stop."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn


class Extras:
    """Numbers in fp32 that are known before backward begins, averaged over the ranks.

    Running statistics of batch normalization travel, so that all ranks hold the same model and one rank's checkpoint
    is the whole state: the `statistics`, or all buffers of floating point if they are None. `like` are tensors with
    the shapes of the numbers; `lay` sets the views.
    """

    def __init__(self, model: nn.Module, statistics: Sequence[Tensor] | None = None) -> None:
        floats = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        self._statistics = floats if statistics is None else list(statistics)
        self._views: list[Tensor] = []
        device = next(model.parameters()).device
        self.like = [*self._statistics, torch.zeros(2, device=device)]  # the loss and the request

    def lay(self, views: Sequence[Tensor]) -> None:
        """Let the numbers travel in `views` from now on."""
        self._views = list(views)

    @torch.no_grad()
    def put(self, loss: Tensor, stop: bool) -> None:
        """Write this rank's numbers into the views."""
        _copy(self._views[:-1], self._statistics)
        numbers = self._views[-1]
        numbers[0].copy_(loss.detach())
        numbers[1].fill_(float(stop))

    @torch.no_grad()
    def take(self) -> None:
        """Copy the views' statistics, now the mean of all ranks, into the model."""
        _copy(self._statistics, self._views[:-1])

    def numbers(self) -> Tensor:
        """[mean loss, above 0 if any rank wants to stop], on the device; the next step writes over it."""
        return self._views[-1]


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)
