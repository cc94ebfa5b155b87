"""The steps of one rank's all-reduces: those of training/collectives/torus.py, and gloo's own ring.

A test compares the messages of the torus with those that the training sends.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from benchmarks.packets.gloo import Gloo, Program, Signal
from torusrun.training.collectives.chunks import chunk_weights, cuts
from torusrun.training.collectives.interface import Mesh

ITEM_BYTES = 4
SEGMENT_BYTES = 1 << 20  # the largest of gloo's ring


@dataclass(frozen=True)
class Job:
    """A vector to reduce, from `ready_s` on."""

    ready_s: float
    elements: int


@dataclass(frozen=True)
class Half:
    """A reduce-scatter or an all-gather over a group of `ranks`, which uses the connections of `group`.

    `sent` are the elements of its messages, in order.
    """

    group: int
    left: int
    right: int
    sent: tuple[int, ...]


def torus(gloo: Gloo, dims: Sequence[int], rank: int, jobs: Sequence[Job], carriers: int) -> list[Program]:
    """What the threads of one rank do: each carries one chunk at a time through all phases.

    As in training/collectives/pipeline.py, a phase takes the chunks in order, one at a time, and all receives of a
    chunk begin before its first phase. One carrier is a training that waits for each vector.
    """
    ways = [(job.ready_s, way) for job in jobs for way in chunk_ways(dims, rank, job.elements)]
    turns = [[Signal() for _ in ways] for _ in range(2 * len(dims))]
    for turn in turns:
        turn[0].fire()
    numbered = iter(enumerate(ways))
    begun_s = gloo.clock.now_s

    def carry() -> Program:
        for number, (ready_s, way) in numbered:
            yield begun_s + ready_s
            coming = [receives(gloo, rank, half, number) for half in way]
            for half, arrivals in zip(way, coming, strict=True):
                yield turns[half.group][number]
                yield from pass_on(gloo, rank, half, arrivals, number)
                if number + 1 < len(ways):
                    turns[half.group][number + 1].fire()

    return [carry() for _ in range(carriers)]


def chunk_ways(dims: Sequence[int], rank: int, elements: int) -> Iterator[list[Half]]:
    """The halves that each chunk of a vector passes on a rank, in order."""
    mesh = Mesh(dims)
    mine = mesh.coordinates(rank)
    weights = chunk_weights(elements * ITEM_BYTES)
    shards = [_sizes(shard, weights) for shard in _sizes(elements, [1] * dims[0])]
    for parts in zip(*shards, strict=True):
        levels = [list(parts)]
        for above, ranks in zip(mine, dims[1:], strict=False):
            levels.append(_sizes(levels[-1][above], [1] * ranks))
        down, up = list[Half](), list[Half]()
        for level, ranks in enumerate(dims):
            group, place, sizes = mesh.group(level, rank), mine[level], levels[level]
            if ranks > 1:
                left, right = group[place - 1], group[(place + 1) % ranks]
                scattered, gathered = (
                    tuple(sizes[(place - step) % ranks] for step in range(first, first + ranks - 1)) for first in (1, 0)
                )
                down.append(Half(level, left, right, scattered))
                up.insert(0, Half(2 * len(dims) - 1 - level, left, right, gathered))
        yield [*down, *up]


def receives(gloo: Gloo, rank: int, half: Half, tag: int = 0) -> list[Signal]:
    """Begin to receive all messages of a half."""
    return [gloo.receive(half.group, rank, half.left, tag) for _ in half.sent]


def pass_on(gloo: Gloo, rank: int, half: Half, arrivals: Sequence[Signal], tag: int = 0) -> Program:
    """Send each message when the one before has arrived from the left, until all are sent and received."""
    going = []
    for size, arrival in zip(half.sent, arrivals, strict=True):
        going.append(gloo.send(half.group, rank, half.right, size * ITEM_BYTES, tag))
        yield arrival
    yield from going


def gloo_ring(gloo: Gloo, group: int, ranks: Sequence[int], place: int, elements: int) -> Program:
    """gloo's own all-reduce of a vector by the rank at `place`: two segments are in flight, and it waits for each.

    Source: gloo, allreduce.cc, commit 1d9e62af (verified; the 1 MiB of a segment is from memory): two segments or more
    for each rank, and ranks send to the one before. A receive begins when the segment two before has arrived, so its
    note waits behind data.
    """
    count = len(ranks)
    total_bytes = elements * ITEM_BYTES
    segments = -(-max(-(-total_bytes // SEGMENT_BYTES), 2 * count) // count) * count
    each, segment_bytes = segments // count, -(-elements // segments) * ITEM_BYTES
    me, source, target = ranks[place], ranks[(place + 1) % count], ranks[place - 1]

    def size(first: int, index: int) -> int:
        return min(segment_bytes, total_bytes - (first * each + index) % segments * segment_bytes)

    for first in (place + 1, place):  # reduce-scatter, all-gather
        going: list[list[Signal]] = []
        for index in range(segments - each):
            if index >= 2:
                yield from going[index - 2]
            signals = []
            if size(first + 1, index) > 0:
                signals.append(gloo.receive(group, me, source))
            if (sent := size(first, index)) > 0:
                signals.append(gloo.send(group, me, target, sent))
            going.append(signals)
        for signals in going[-2:]:
            yield from signals


def _sizes(length: int, weights: Sequence[int]) -> list[int]:
    ends = cuts(length, weights)
    return [end - begin for begin, end in zip(ends, ends[1:], strict=False)]
