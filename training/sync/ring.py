"""The two halves of a ring all-reduce, as messages between neighbours: gloo has neither as a ring of its own.

gloo's reduce-scatter all-reduces everything and slices, and its all-to-all posts sends before receives, so that a pair
of ranks that sends both ways at once takes turns on its connection (1.9 times the time on a shaped link). Here all
receives are posted first, so that no sender waits for word of one behind the data of others. Source: Patarasuk and
Yuan 2009, section 4 (from memory); each of N ranks sends (N-1)/N of the buffer in each half.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import Tensor

from ..cut_off import PeerLost


def reduce_scatter(buffer: Tensor, group: dist.ProcessGroup) -> Tensor:
    """This rank's part of the sum of `buffer` over `group`, as a view of it; the other parts are left half summed.

    The length must divide by the ranks. Every part is summed by one chain of ranks, so all see the same bits of it.
    """
    mine, left, right, parts = _neighbours(buffer, group)
    arrived = [torch.empty_like(part) for part in parts[1:]]
    coming = [dist.irecv(part, left, group) for part in arrived]
    going = []
    for step, arrival in enumerate(coming, 1):
        going.append(dist.isend(parts[mine - step], right, group))
        _wait(arrival)
        parts[mine - step - 1] += arrived[step - 1]
    for departure in going:
        _wait(departure)
    return parts[mine]


def all_gather(buffer: Tensor, group: dist.ProcessGroup) -> None:
    """Fill `buffer` with every rank's part of it."""
    mine, left, right, parts = _neighbours(buffer, group)
    coming = [dist.irecv(parts[mine - step], left, group) for step in range(1, len(parts))]
    going = []
    for step, arrival in enumerate(coming):
        going.append(dist.isend(parts[mine - step], right, group))
        _wait(arrival)
    for departure in going:
        _wait(departure)


def _neighbours(buffer: Tensor, group: dist.ProcessGroup) -> tuple[int, int, int, list[Tensor]]:
    """(this rank's place in the ring, the rank before it, the one behind it, the buffer in parts)."""
    ring, mine = dist.get_process_group_ranks(group), dist.get_rank(group)
    parts = list(buffer.view(len(ring), -1).unbind())
    return mine, ring[mine - 1], ring[(mine + 1) % len(ring)], parts


def _wait(work: dist.Work | None) -> None:
    if work is None:
        return
    try:
        work.wait()
    except RuntimeError as error:
        raise PeerLost(str(error)) from error
