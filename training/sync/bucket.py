"""Some gradients in one flat vector, its all-reduce, and the times at which gradients are ready."""

from __future__ import annotations

import statistics
import time
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from torusrun.training.collectives.interface import AllReduce, Pending


def _views(vector: Tensor, like: Sequence[Tensor]) -> list[Tensor]:
    """Adjacent parts of a flat vector, each with the shape and the memory format of a tensor of `like`."""
    sizes = [tensor.numel() for tensor in like]
    pieces = torch.split(vector[: sum(sizes)], sizes)
    return [_shaped(piece, tensor) for piece, tensor in zip(pieces, like, strict=True)]


def _shaped(piece: Tensor, like: Tensor) -> Tensor:
    if like.ndim == 4 and like.is_contiguous(memory_format=torch.channels_last):
        return piece.as_strided(like.size(), like.stride(), piece.storage_offset())
    return piece.view_as(like)


WARM_UP_STEPS = 2  # the first steps choose kernels and open connections


class ReadyTimes:
    """Marks for the gradients of each step: times or, on a GPU, events in the stream of the computation."""

    def __init__(self, device: torch.device) -> None:
        self._cuda = device.type == "cuda"
        self._steps: list[tuple[Any, dict[int, Any]]] = []

    def begin(self) -> None:
        """The last forward pass of a step is done."""
        self._steps.append((self._mark(), {}))

    def complete(self, number: int) -> None:
        """The gradient with this number is complete."""
        self._steps[-1][1][number] = self._mark()

    def median_s(self, gradients: int) -> list[float]:
        """Seconds from the begin of backward to each gradient, the median over the steps after the warm-up.

        A gradient that never arrived counts as ready with the last. It waits for the device.
        """
        steps = [
            {number: self._between_s(start, mark) for number, mark in marks.items()}
            for start, marks in self._steps[min(WARM_UP_STEPS, len(self._steps) - 1) :]
        ]
        last_s = max((max(step.values(), default=0.0) for step in steps), default=0.0)
        ready = ([step[number] for step in steps if number in step] for number in range(gradients))
        return [statistics.median(times_s) if times_s else last_s for times_s in ready]

    def _mark(self) -> Any:
        if not self._cuda:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
        event.record()
        return event

    def _between_s(self, first: Any, second: Any) -> float:
        if not self._cuda:
            return float(second - first)
        second.synchronize()
        return float(first.elapsed_time(second)) / 1e3


class Bucket:
    """[gradients | other tensors | padding], as views of `vector`; `numbers` are those of the gradients.

    `waiting_for` holds the gradients that are not complete yet in this step.
    """

    def __init__(
        self, numbers: Sequence[int], like: Sequence[Tensor], all_reduce: AllReduce, dtype: torch.dtype
    ) -> None:
        length = all_reduce.padded(sum(tensor.numel() for tensor in like))
        self.numbers, self.vector = tuple(numbers), torch.zeros(length, device=like[0].device, dtype=dtype)
        views = _views(self.vector, like)
        self.gradients, self.others = views[: len(numbers)], views[len(numbers) :]
        self.waiting_for: set[int] = set()
        self._all_reduce = all_reduce
        self._pending: Pending | None = None

    def facts(self) -> dict[str, object]:
        """The number of its gradients, its length in memory, and its all-reduce algorithm."""
        how = self._all_reduce.name(self.vector)
        return {"gradients": len(self.numbers), "bytes": self.vector.nbytes, "all_reduce": how}

    def start(self) -> None:
        """Begin to replace the vector by its mean over the ranks."""
        self._pending = self._all_reduce.start(self.vector)

    def reduce(self) -> None:
        """Replace the vector by its mean over the ranks. Raises PeerLost."""
        self._all_reduce.mean_(self.vector)

    def wait(self) -> None:
        """Wait until the vector is the mean; on a GPU only the work that is queued next waits. Raises PeerLost."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
