"""One answer for all ranks, and the answers of all."""

from __future__ import annotations

import torch
import torch.distributed as dist

_last: list[torch.Tensor] = []


def agreed(answer: bool, device: torch.device) -> bool:
    """Rank 0's `answer` on every rank; all must call it together."""
    return bool(agreed_number(answer, device))


def agreed_number(number: int, device: torch.device) -> int:
    """Rank 0's `number` on every rank; all must call it together.

    It travels as a tensor, because collectives of objects load pickles, and pickles run code.
    """
    shared = _kept(number, device)
    dist.broadcast(shared, 0)
    return int(shared.item())


def on_all_ranks(answer: bool, device: torch.device) -> bool:
    """Whether the `answer` of every rank is true; all must call it together."""
    shared = _kept(answer, device)
    dist.all_reduce(shared, dist.ReduceOp.MIN)
    return bool(shared.item())


def everyones(own: torch.Tensor, group: dist.ProcessGroup | None = None) -> torch.Tensor:
    """[ranks, ...]: the tensor `own` of each rank, or of each in a group; all of them must call it together."""
    found = [torch.empty_like(own) for _ in range(dist.get_world_size(group))]
    dist.all_gather(found, own, group=group)
    return torch.stack(found)


def _kept(answer: int, device: torch.device) -> torch.Tensor:
    shared = torch.tensor([int(answer)], device=device)
    # torch 2.6 waits forever in destroy_process_group if a thread of gloo is the last to release a tensor.
    _last[:] = [shared]
    return shared
