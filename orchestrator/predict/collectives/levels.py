"""d levels: 2 sum_i [(d_i - 1) a_i + (d_i - 1)/d_i n/(prod_{j<i} d_j B_i)].

Source: BlueConnect (Cho et al., MLSys 2019; abstract verified, formula derived): reduce-scatters over d_1, d_2, ...,
then all-gathers in reverse order. One dimension is the ring, two are Sony's torus with ring columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from orchestrator.predict.collectives import ring
from orchestrator.predict.collectives.links import Chain, chain
from orchestrator.predict.network import Network


def all_reduce_s(size_bytes: float, network: Network, dims: Sequence[int]) -> float:
    """The time of all levels. `dims` are the sizes of a group of each level, innermost first; their product is N."""
    return sum(ring.all_reduce_s(part, along) for part, along in stages(size_bytes, network, dims))


def stages(size_bytes: float, network: Network, dims: Sequence[int]) -> Iterator[tuple[float, Chain]]:
    """(the bytes that a rank reduces, its group) for every level."""
    stride = 1
    for count in dims:
        yield size_bytes / stride, chain(network, count, stride)
        stride *= count


def sent_bytes(size_bytes: float, dims: Sequence[int]) -> float:
    """The bytes that one rank sends in all levels: 2 n (N-1)/N, as in a ring."""
    total, held = 0.0, size_bytes
    for count in dims:
        total += ring.sent_bytes(held, count)
        held /= count
    return total
