"""Process groups of a mesh: one for every phase, so that phases that run at the same time share no connection."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from functools import partial

import torch
import torch.distributed as dist

from torusrun.training.collectives.cut_off import PeerLost

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
