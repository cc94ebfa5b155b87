"""The lines of many files in the order of time, if the times are known."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from operator import itemgetter

from torusrun.orchestrator.show.logs.source import BLOCK_BYTES, FollowedFile, LogLine

SMALLEST_BLOCK_BYTES = 4096
ALL_BLOCKS_BYTES = 32 << 20  # of all files that are read together
FIRST = float("-inf")


def new_lines(files: Sequence[FollowedFile], *, whole: bool) -> Iterator[LogLine]:
    """The new lines of all files in order; without `whole` also unfinished lines."""
    share = ALL_BLOCKS_BYTES // max(len(files), 1)
    for file in files:
        file.block_bytes = min(max(share, SMALLEST_BLOCK_BYTES), BLOCK_BYTES)
    return in_order([file.new(whole=whole) for file in files])


def in_order(files: Sequence[Iterable[LogLine]]) -> Iterator[LogLine]:
    """The lines of all files by time. The lines of one file keep their order, regardless of its clock.

    A line without a time follows the line before it; files without any times come first, one after the other. Of lines
    with equal times, those of the earlier file come first.
    """
    if len(files) == 1:
        yield from files[0]
        return
    for _, line in heapq.merge(*map(_keyed, files), key=itemgetter(0)):
        yield line


def _keyed(lines: Iterable[LogLine]) -> Iterator[tuple[float, LogLine]]:
    latest_s = FIRST
    for line in lines:
        if line.time_s is not None and line.time_s > latest_s:
            latest_s = line.time_s
        yield latest_s, line
