"""The chunks of a vector, so that the levels of a mesh work at the same time; and which all-reduce it takes by size."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from torch import Tensor  # the prediction uses these chunks too, without torch

SMALLEST_CHUNK_BYTES = 1024 * 1024
MOST_DOUBLINGS = 3


Kind = Literal["torus", "flat", "hierarchical"]


@dataclass(frozen=True)
class Span:
    """The all-reduce of vectors that travel as so many bytes or more, up to the next span."""

    from_bytes: int
    all_reduce: Kind


Spans = tuple[Span, ...]  # the first begins at 0 bytes, the others follow in order

# Source: Jia et al. 2018 (Tencent), arXiv 1807.11205: hierarchical for small tensors, where the number of steps decides
# the time, and a ring for large ones, where the bytes decide (secondary). The limit between them is not published.
HYBRID: Spans = (Span(0, "hierarchical"), Span(1 << 20, "flat"))


def at_size(spans: Spans, size_bytes: float) -> Kind:
    """The name of the all-reduce of a vector that travels as so many bytes."""
    return next(span.all_reduce for span in reversed(spans) if span.from_bytes <= size_bytes)


def chunk_weights(vector_bytes: int) -> list[int]:
    """The sizes of a vector's chunks, relative to the first: 1, 2, 4, 8, 8, 8, 4, 2, 1 from 38 MiB on.

    While the first chunk is in the first levels and the last chunk in the last, the slowest level is idle: so these two
    are small, 1/38. Doubling keeps the others few. Shorter vectors have fewer chunks (6 from 14 MiB, 3 from 4 MiB,
    else 1), so a chunk has at least 1 MiB: over gloo a chunk costs about a millisecond if the cores are busy, and 1 MiB
    takes as long at 10 Gbit/s.
    """
    weights = [1]
    for doublings in range(1, MOST_DOUBLINGS + 1):
        up = [2**i for i in range(doublings)]
        longer = [*up, *[2**doublings] * doublings, *reversed(up)]
        if vector_bytes < SMALLEST_CHUNK_BYTES * sum(longer):
            break
        weights = longer
    return weights


def split(vector: Tensor, weights: Sequence[int], unit: int = 1) -> list[Tensor]:
    """Adjacent views with lengths in proportion to `weights`, rounded to `unit` elements; `unit` divides the length."""
    return [vector[a:b] for a, b in pairwise(cuts(vector.numel(), weights, unit))]


def cuts(elements: int, weights: Sequence[int], unit: int = 1) -> list[int]:
    """The beginning of each view of `split`, and the end of the last."""
    total = sum(weights)
    return [elements // unit * upto // total * unit for upto in accumulate(weights, initial=0)]
