"""One flat vector carries all that the ranks must agree on after a step, through one all-reduce."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from training.sync.all_reduce import AllReduce
from training.sync.arena import Arena


class FlatGradients:
    """[gradients | running statistics | loss | stop flag | padding], averaged over all ranks.

    Every parameter's `.grad` is a view of the vector: backward adds into it, so it is cleared with `clear`,
    never with `zero_grad(set_to_none=True)`. Running statistics of batch normalization travel along, so that
    all ranks hold the same model and one rank's checkpoint is the whole state. `mean_loss` and `stop` are
    those of the last `average`.
    """

    def __init__(self, model: nn.Module, all_reduce: AllReduce) -> None:
        parameters = list(model.parameters())
        self._statistics = [buffer for buffer in model.buffers() if buffer.is_floating_point()]
        extras = parameters[0].new_zeros(2)  # the loss and the stop flag
        like = [*parameters, *self._statistics, extras]
        arena = Arena(like, all_reduce.padded(sum(tensor.numel() for tensor in like)), torch.float32)
        for parameter, view in zip(parameters, arena.views, strict=False):
            parameter.grad = view
        self._vector, self._extras = arena.vector, arena.views[-1]
        self._statistics_views = arena.views[len(parameters) : -1]
        self._all_reduce = all_reduce
        self.mean_loss, self.stop = 0.0, False

    def clear(self) -> None:
        """Set all gradients to zero."""
        self._vector.zero_()

    def average(self, loss: Tensor, stop: bool) -> None:
        """After backward: replace gradients and statistics by their mean over the ranks, on every rank alike.

        `stop` comes out true on all ranks if any rank put it in.
        """
        _copy(self._statistics_views, self._statistics)
        self._extras[0], self._extras[1] = loss.detach(), float(stop)
        self._all_reduce.mean_(self._vector)
        _copy(self._statistics, self._statistics_views)
        self.mean_loss, stopping = self._extras.tolist()
        self.stop = stopping > 0


def _copy(targets: list[Tensor], sources: list[Tensor]) -> None:
    for target, source in zip(targets, sources, strict=True):
        target.copy_(source)
