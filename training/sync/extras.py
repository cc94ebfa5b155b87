"""The numbers that travel with the gradients: running statistics, the loss, and the request to stop."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from torusrun.training.norm.convert import layers, running
from torusrun.training.sync.alike import BITS


class Extras:
    """Numbers in fp32 that are known before backward begins, averaged over the ranks.

    Running statistics of batch normalization travel, so that all ranks hold the same model and one rank's checkpoint
    is the whole state: the `statistics`, or all buffers of floating point if they are None. Other buffers travel, too,
    and keep their bits in a step in which no rank changed them. `like` are tensors with the shapes of the numbers;
    `lay` sets the views. A step: `hold` before its first forward pass, `put`, `take`.
    """

    def __init__(self, model: nn.Module, statistics: Sequence[Tensor] | None = None) -> None:
        floats = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        changing = {id(tensor) for tensor in running(layers(model))}
        found = floats if statistics is None else list(statistics)
        self._others = [tensor for tensor in found if id(tensor) not in changing]
        self._statistics = [tensor for tensor in found if id(tensor) in changing]
        self._held = [tensor.clone() for tensor in self._others]
        self._views: list[Tensor] = []
        device = next(model.parameters()).device
        # at the end the loss, the request, and for each of the other buffers whether it changed
        self.like = [*self._statistics, *self._others, torch.zeros(2 + len(self._others), device=device)]

    def lay(self, views: Sequence[Tensor]) -> None:
        """Let the numbers travel in `views` from now on."""
        self._views = list(views)

    @torch.no_grad()
    def hold(self) -> None:
        """Keep the buffers as they are before the step: all ranks hold the same."""
        _copy(self._held, self._others)

    @torch.no_grad()
    def put(self, loss: Tensor, stop: bool) -> None:
        """Write this rank's numbers into the views."""
        _copy(self._views[: len(self._statistics)], self._statistics)
        numbers = self._views[-1]
        numbers[0].copy_(loss.detach())
        numbers[1].fill_(float(stop))
        for changed, view, now, held in zip(numbers[2:], self._travelling(), self._others, self._held, strict=True):
            changed.copy_((_bits(now) != _bits(held)).any())
            view.copy_(torch.where(now == held, 0.0, now - held) if now.dtype == torch.float64 else now)

    @torch.no_grad()
    def take(self) -> None:
        """Copy the views' statistics, now the mean of all ranks, into the model."""
        _copy(self._statistics, self._views[: len(self._statistics)])
        for changed, view, now, held in zip(
            self._views[-1][2:], self._travelling(), self._others, self._held, strict=True
        ):
            mean = held + view if now.dtype == torch.float64 else view.to(now.dtype)
            now.copy_(torch.where(changed > 0, mean, held))

    def numbers(self) -> Tensor:
        """[mean loss, above 0 if any rank wants to stop], on the device; the next step writes over it."""
        return self._views[-1][:2]

    def _travelling(self) -> list[Tensor]:
        """The views of the other buffers; of those with float64 the difference travels, which fp32 rounds less."""
        return self._views[len(self._statistics) : -1]


def _bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(BITS[tensor.element_size()])


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    if targets:
        torch._foreach_copy_(targets, sources)
