"""The two trees of NCCL's all-reduce: every node is inner in one and a leaf in the other.

Source: NCCL 2.30.7, src/graph/trees.cc, commit 5067397 (verified). Each tree carries half of the bytes to the root and
back.
"""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=64)
def edges(nodes: int) -> tuple[tuple[int, int], ...]:
    """The (child, parent) edges of both trees over nodes 0, 1, ..."""
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
    """The most edges that leave one of the blocks 0 to block-1, block to 2 block - 1, ..."""
    leaving: dict[int, int] = {}
    for a, b in edges(nodes):
        if a // block != b // block:
            for end in (a // block, b // block):
                leaving[end] = leaving.get(end, 0) + 1
    return max(leaving.values(), default=0)
