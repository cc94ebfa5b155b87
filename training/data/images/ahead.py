"""A batch is made while the step before it runs: one at most, so that memory is bounded."""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

T_co = TypeVar("T_co", covariant=True)
T = TypeVar("T")
Samples = list[tuple[int, int]]


class Decoded(Protocol[T_co]):
    """A value that other threads are making."""

    def result(self) -> T_co: ...

    def cancel(self) -> object: ...


class Ahead(Generic[T]):
    """Returns batches, and starts to make the next expected one."""

    def __init__(self, start: Callable[[Samples], Decoded[T]]) -> None:
        self._start = start
        self._samples: Samples = []
        self._pending: Decoded[T] | None = None

    def expect(self, samples: Samples) -> None:
        """Begin to make the batch of these samples."""
        if self._pending is None or self._samples != samples:
            self.drop()
            self._samples, self._pending = samples, self._start(samples)

    def take(self, samples: Samples) -> T:
        """The batch of these samples, expected or not."""
        if self._pending is None or self._samples != samples:
            return self._start(samples).result()
        pending, self._pending = self._pending, None
        return pending.result()

    def drop(self) -> None:
        """Drop the expected batch."""
        if self._pending is not None:
            self._pending.cancel()
        self._pending = None
