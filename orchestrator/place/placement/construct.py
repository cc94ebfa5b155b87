"""Placements by construction: the starts of the search."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence

from torusrun.orchestrator.place.placement.problem import PlacementProblem

PACKED = 400  # kinds of hosts; beyond them remainders are not packed, which takes the square of their number


def candidates(problem: PlacementProblem) -> Iterator[list[int]]:
    """Starts worth improving: by name, by the tree, with remainders packed, and the last two by columns."""
    yield list(problem.fabric.kinds)
    tree = sorted(problem.fabric.kinds)
    yield tree
    row, rows = _shape(problem)
    if row > 1:
        few = len(problem.fabric.paths) <= PACKED
        yield aligned(problem, row)
        if few:
            yield packed(problem, row)
        if rows > 1:
            for kinds in (tree, aligned(problem, rows), *([packed(problem, rows)] if few else [])):
                yield by_columns(kinds, row, rows)


def by_columns(kinds: Sequence[int], row: int, rows: int) -> list[int]:
    """The kinds of a row-by-row order, placed column by column."""
    return [kinds[(p % row) * rows + p // row] for p in range(row * rows)]


def orders(problem: PlacementProblem, tries: int) -> Iterator[list[int]]:
    """Leaf after leaf in random orders, by rows and by columns; always the same orders."""
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
    """Leaf after leaf, switch by switch: the next leaf is the leaf that ends nearest to the end of a row."""
    waiting: dict[tuple[int, ...], dict[int, list[int]]] = {}  # below each switch the kinds of each size, last first
    for path, kind, count in reversed(_blocks(problem)):
        waiting.setdefault(path[:-1], {}).setdefault(count, []).append(kind)
    kinds, above = list[int](), tuple[int, ...]()
    while waiting:
        shared = {switches: _shared(above, switches) for switches in waiting}
        near, start = max(shared.values()), len(kinds)
        _, _, kind, count, above = min(
            ((-start - count) % row, -count, of_size[-1], count, switches)
            for switches, sizes in waiting.items()
            if shared[switches] == near
            for count, of_size in sizes.items()
        )
        sizes = waiting[above]
        sizes[count].pop()
        if not sizes[count]:
            del sizes[count]
        if not sizes:
            del waiting[above]
        kinds += [kind] * count
    return kinds


def _shared(a: tuple[int, ...], b: tuple[int, ...]) -> int:
    """The number of switches from the top that two paths share, before they part."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), len(a))


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
