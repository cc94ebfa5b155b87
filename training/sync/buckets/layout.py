"""The gradients of each bucket, and the order in which the buckets are reduced."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Layout:
    """`order` has the gradients' numbers in the model, the first to be ready first.

    `counts` has the number of gradients of each bucket. Raises ValueError unless every gradient is in one bucket.
    """

    order: tuple[int, ...]
    counts: tuple[int, ...]

    def __post_init__(self) -> None:
        whole = sorted(self.order) == list(range(len(self.order)))
        if not whole or min(self.counts) < 1 or sum(self.counts) != len(self.order):
            raise ValueError(f"{len(self.counts)} buckets do not hold each of {len(self.order)} gradients once")

    @property
    def buckets(self) -> list[tuple[int, ...]]:
        """The numbers of the gradients in each bucket."""
        ends = list(accumulate(self.counts))
        return [self.order[end - count : end] for end, count in zip(ends, self.counts, strict=True)]


def expected_order(gradients: int) -> tuple[int, ...]:
    """The expected order of gradients before any measurement: the last parameter's is first."""
    return tuple(range(gradients))[::-1]
