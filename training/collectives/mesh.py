"""The ranks as a mesh of one to three levels (rows, columns and racks), and its process groups.

There is a group for every phase, so that phases that run at the same time share no connection.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from datetime import timedelta
from functools import partial
from math import prod

import torch
import torch.distributed as dist

from torusrun.training.collectives.cut_off import PeerLost

MOST_LEVELS = 3


class Mesh:
    """Ranks 0 to N-1 laid out as `dims`, 1 to 3 numbers of at least 1 whose product is N; the first varies fastest.

    In a mesh (X, Y, Z) rank = (z * Y + y) * X + x. A group of level 0 is a row: the X ranks with the same (y, z). A
    group of level 1 is a column. A group of level 2 has one rank of every rack. Raises ValueError for other dims.
    """

    def __init__(self, dims: Sequence[int]) -> None:
        self.dims, self.ranks = tuple(dims), prod(dims)
        if not 1 <= len(dims) <= MOST_LEVELS or any(ranks < 1 for ranks in dims):
            raise ValueError(f"a grid has 1 to {MOST_LEVELS} levels of at least 1 rank, not {self}")

    def __str__(self) -> str:
        return " x ".join(map(str, self.dims))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """The coordinate of a rank in each level."""
        found = []
        for ranks in self.dims:
            rank, place = divmod(rank, ranks)
            found.append(place)
        return tuple(found)

    def group(self, level: int, rank: int) -> list[int]:
        """The ranks of the group of a level that contains `rank`, in the order of the group."""
        stride = prod(self.dims[:level])
        first = rank - self.coordinates(rank)[level] * stride
        return [first + stride * i for i in range(self.dims[level])]


def wire_bytes(buffer_bytes: int, dims: Sequence[int]) -> tuple[float, ...]:
    """Bytes that one rank sends in each level to reduce n = `buffer_bytes` by the torus.

    A level of d ranks gets n over the product of the levels before it, and sends 2 (d-1)/d of that: half in the
    reduce-scatter and half in the all-gather. It receives as many bytes. If n does not divide by the ranks, this is the
    mean over them.
    """
    return tuple(2 * (d - 1) / d * buffer_bytes / prod(dims[:level]) for level, d in enumerate(dims))


NO_TAG = 2**31 - 1  # no rank sends with this tag


def own_group(ranks: list[int]) -> dist.ProcessGroup:
    """A new group of `ranks`, which include this one; only its members call it, all in the same order.

    It has the default group's timeout: torch would give it 30 minutes.
    """
    make = partial(dist.new_group, ranks, timeout=_timeout(), use_local_synchronization=True)
    group: dist.ProcessGroup = make()
    return group


@contextlib.contextmanager
def exchange(group: dist.ProcessGroup) -> Iterator[None]:
    """Turns the errors of a gloo collective within it into PeerLost."""
    try:
        yield
    except RuntimeError as error:
        ranks = dist.get_process_group_ranks(group)
        raise PeerLost(f"one of ranks {ranks[0]} to {ranks[-1]} is lost: {error}") from error


def close_connections(group: dist.ProcessGroup) -> None:
    """End everything that waits in a group of gloo, here and on its other ranks.

    gloo has no call for it, but a receive that meets its time limit closes all connections of its group.
    """
    if group.size() > 1:
        with contextlib.suppress(RuntimeError):
            group.recv([torch.empty(1)], (group.rank() + 1) % group.size(), NO_TAG).wait(timedelta(milliseconds=1))


def _timeout() -> timedelta | None:
    default = dist.distributed_c10d._get_default_group()
    device = torch.device("cuda" if dist.get_backend() == "nccl" else "cpu")
    options = getattr(default._get_backend(device), "options", None)
    return getattr(options, "_timeout", None)
