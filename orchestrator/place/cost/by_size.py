"""Which all-reduce a message of each size takes, by the times of both that were measured over the same grid.

The torus is taken from one measured size to the next if it was quicker than the library's own (NCCL's or gloo's) at
both: so at no measured size the choice is slower, and no single time decides. Sizes beyond the largest take what the
largest takes: for those the bytes decide, not the steps. Peer: PCCL (arXiv 2504.18658, secondary), which chooses by
size and ranks with a model that it has learned.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torusrun.training.collectives.chunks import Span, Spans

GAIN = 1.02  # the library's time over that of the torus, at least
TimedBoth = tuple[float, ...]  # bytes on the wire, the library's microseconds, those of the torus


def quicker(measured: Sequence[TimedBoth]) -> Spans:
    """The spans of the quicker all-reduces; () if nothing is measured."""
    wins = {max(1, int(size)): library_us >= GAIN * torus_us for size, library_us, torus_us in measured}
    spans = [Span(0, "flat")]
    for size_bytes, larger_bytes in pairwise(sorted(wins)):
        both = wins[size_bytes] and wins[larger_bytes]
        if both and spans[-1].all_reduce == "flat":
            spans.append(Span(size_bytes, "torus"))
        elif not both and spans[-1].all_reduce == "torus":
            spans.append(Span(size_bytes + 1, "flat"))
    return tuple(spans) if wins else ()
