"""A batch is made while the step before it runs: no second batch, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import NamedTuple

from torch import Tensor

Samples = list[tuple[int, int]]
Batch = tuple[Tensor, Tensor]


class Decoding(NamedTuple):
    """A batch that threads are filling: images [B, 3, height, width], and labels [B], -1 for left-out images."""

    images: Tensor
    labels: Tensor
    futures: Sequence[Future[None]]

    def result(self) -> Batch:
        """The whole batch. Raises the error of a thread."""
        try:
            for future in self.futures:
                future.result()
        finally:
            self.cancel()
        good = self.labels >= 0
        return (self.images, self.labels) if bool(good.all()) else (self.images[good], self.labels[good])

    def good(self) -> list[Batch]:
        """The batch without left-out images; no batch if all are left out."""
        images, labels = self.result()
        return [(images, labels)] if len(labels) else []

    def cancel(self) -> None:
        """Stop threads from beginning another image of the batch."""
        for future in self.futures:
            future.cancel()


class Ahead:
    """Returns batches, and starts to make the next expected batch."""

    def __init__(self, start: Callable[[Samples], Decoding | Future[Batch]]) -> None:
        self._start = start
        self._samples: Samples = []
        self._pending: Decoding | Future[Batch] | None = None

    def expect(self, samples: Samples) -> None:
        if self._pending is None or self._samples != samples:
            self.drop()
            self._samples, self._pending = samples, self._start(samples)

    def take(self, samples: Samples) -> Batch:
        """The batch of these samples, expected or not."""
        if self._pending is None or self._samples != samples:
            return self._start(samples).result()
        pending, self._pending = self._pending, None
        return pending.result()

    def drop(self) -> None:
        if self._pending is not None:
            self._pending.cancel()
        self._pending = None
