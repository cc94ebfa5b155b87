"""The load of an all-reduce's phases on the links.

The ranks are a grid of one to three levels. Down the levels every group reduce-scatters, the last level all-reduces,
and back up every group all-gathers. All groups of a level run at the same time, so a phase is as slow as its slowest
group and its busiest link.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache


@dataclass(frozen=True)
class TreeLinks:
    """The all-reduce of a group as NCCL's double binary tree: a chain in each node, two trees over the nodes."""

    chain: int  # ranks of a group in a node
    nodes: int
    near_s: float  # latency of a hop within a node
    far_s: float  # of the slowest hop between nodes
    link_s_per_byte: float  # time of the busiest link, per byte of gradient


@dataclass(frozen=True)
class PhaseLinks:
    """One phase. Bytes are per byte of gradient; hops are those from the first to the last rank of a group.

    A group of one rank has no hops, and takes no time.
    """

    ranks: int  # of a group
    share: float  # part of the vector that a rank holds when the phase begins
    times: int  # how often a chunk goes round the ring: 2 for an all-reduce, 1 for half of it
    near_hops: int = 0
    far_hops: int = 0
    near_s: float = 0.0  # latency of a hop within a node
    far_s: float = 0.0  # of all hops between nodes together
    link_s_per_byte: float = 0.0  # time of the busiest link with rings
    chunk_s: float = 0.0  # latency of the slowest chunk
    chunk_s_per_byte: float = 0.0  # transfer time of the slowest chunk
    tree: TreeLinks | None = None  # only of an all-reduce

    @property
    def hops_s(self) -> float:
        """The latency of all hops together."""
        return self.near_hops * self.near_s + self.far_s

    @property
    def sent(self) -> float:
        """What a rank sends, per byte of gradient."""
        return self.times * (self.ranks - 1) / self.ranks * self.share


@lru_cache(maxsize=64)
def edges(nodes: int) -> tuple[tuple[int, int], ...]:
    """The (child, parent) edges of NCCL's two trees over nodes 0, 1, ...

    Every node is inner in one tree and a leaf in the other. Each tree carries half of the bytes to the root and back.
    Source: NCCL 2.30.7, src/graph/trees.cc, commit 5067397 (verified).
    """
    tree = [(node, _parent(nodes, node)) for node in range(1, nodes)]
    if nodes % 2:
        other = [((a + 1) % nodes, (b + 1) % nodes) for a, b in tree]
    else:
        other = [(nodes - 1 - a, nodes - 1 - b) for a, b in tree]
    return (*tree, *other)


def _parent(nodes: int, node: int) -> int:
    bit = node & -node
    up = (node ^ bit) | (bit << 1)
    return up if up < nodes else node ^ bit


@lru_cache(maxsize=256)
def most_leaving(nodes: int, block: int) -> int:
    """The most edges that leave any of the blocks 0 to block-1, block to 2 block - 1, ..."""
    leaving: dict[int, int] = {}
    for a, b in edges(nodes):
        if a // block != b // block:
            for end in (a // block, b // block):
                leaving[end] = leaving.get(end, 0) + 1
    return max(leaving.values(), default=0)
