"""Placements by construction: the starts of the search."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from orchestrator.network.placement.problem import PlacementProblem


def candidates(problem: PlacementProblem) -> Iterator[list[int]]:
    """Starts worth improving: by name, by the tree, with remainders packed, and the last two by columns."""
    yield list(problem.fabric.kinds)
    tree = sorted(problem.fabric.kinds)
    yield tree
    row, rows = _shape(problem)
    if row > 1:
        yield aligned(problem, row)
        yield packed(problem, row)
        if rows > 1:
            for kinds in (tree, aligned(problem, rows), packed(problem, rows)):
                yield by_columns(kinds, row, rows)


def by_columns(kinds: Sequence[int], row: int, rows: int) -> list[int]:
    """The kinds of a row-by-row order, placed column by column."""
    return [kinds[(p % row) * rows + p // row] for p in range(row * rows)]


def orders(problem: PlacementProblem, tries: int) -> Iterator[list[int]]:
    """Leaf after leaf in random orders, by rows and by columns; always the same ones."""
    chance = random.Random(0)
    counts, (row, rows) = problem.fabric.counts, _shape(problem)
    leaves = list(range(len(counts)))
    for i in range(tries):
        chance.shuffle(leaves)
        kinds = [kind for kind in leaves for _ in range(counts[kind])]
        yield by_columns(kinds, row, rows) if i % 2 and row > 1 else kinds


def _shape(problem: PlacementProblem) -> tuple[int, int]:
    torus = problem.rings.torus
    return torus[:2] if torus else (1, problem.rings.positions)


def _blocks(problem: PlacementProblem) -> list[tuple[tuple[int, ...], int, int]]:
    """The (path from the top, kind, hosts) of every kind, in the order of the tree."""
    fabric = problem.fabric
    return [(tuple(reversed(fabric.paths[kind])), kind, count) for kind, count in enumerate(fabric.counts)]


def aligned(problem: PlacementProblem, row: int) -> list[int]:
    """Leaf after leaf, switch by switch: the next leaf is the one that ends nearest to the end of a row."""
    waiting, kinds = _blocks(problem), list[int]()
    path: tuple[int, ...] = ()
    while waiting:
        near = max(_shared(path, block[0]) for block in waiting)
        start = len(kinds)
        best = min(
            (block for block in waiting if _shared(path, block[0]) == near),
            key=lambda block: ((-start - block[2]) % row, -block[2], block[1]),
        )
        waiting.remove(best)
        path = best[0]
        kinds += [best[1]] * best[2]
    return kinds


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The number of switches that two paths from the top share, without their last ones."""
    return next((i for i, (x, y) in enumerate(zip(a[:-1], b[:-1], strict=False)) if x != y), len(a[:-1]))


def packed(problem: PlacementProblem, row: int) -> list[int]:
    """Whole rows of one leaf; the remainders are packed into rows beside a leaf, each in one piece if possible."""
    whole = {kind: count // row for _, kind, count in _blocks(problem)}
    pieces = [(count % row, kind) for _, kind, count in _blocks(problem) if count % row]
    shared = _fill(sorted(pieces, reverse=True), row)
    kinds: list[int] = []
    for mixed in shared:
        first, last = mixed[0], mixed[-1]
        kinds += [first] * (row * whole.pop(first, 0))
        kinds += mixed
        kinds += [last] * (row * whole.pop(last, 0))
    for kind, count in whole.items():
        kinds += [kind] * (row * count)
    return kinds


def _fill(pieces: Sequence[tuple[int, int]], row: int) -> list[list[int]]:
    """Rows made of pieces (size, kind), largest first; a piece is broken only if no pieces fill the gap exactly.

    Larger pieces are at the ends of a row, where they touch the whole rows of their leaf. A piece in the middle touches
    nothing of its own leaf, which costs as many column hops as it is long.
    """
    waiting, made = sorted(pieces), list[list[int]]()
    while waiting:
        first = waiting.pop()
        chosen = _exactly(waiting, row - first[0])
        if chosen is None:
            chosen, gap = [], row - first[0]
            while gap:
                size, kind = next((piece for piece in reversed(waiting) if piece[0] <= gap), waiting[0])
                waiting.remove((size, kind))
                chosen.append((min(size, gap), kind))
                if size > gap:
                    waiting = sorted([*waiting, (size - gap, kind)])
                gap -= min(size, gap)
        else:
            for piece in chosen:
                waiting.remove(piece)
        chosen.sort()
        made.append([kind for size, kind in (first, *chosen) for _ in range(size)])
    return made


def _exactly(pieces: Sequence[tuple[int, int]], gap: int) -> list[tuple[int, int]] | None:
    """The fewest pieces that fill `gap` exactly, or None."""
    ways: dict[int, list[tuple[int, int]]] = {0: []}
    for piece in reversed(pieces):
        for filled, chosen in list(ways.items()):
            total = filled + piece[0]
            if total <= gap and (total not in ways or len(ways[total]) > len(chosen) + 1):
                ways[total] = [*chosen, piece]
    return ways.get(gap)
