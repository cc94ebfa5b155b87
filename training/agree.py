"""One answer for all ranks."""

from __future__ import annotations

import torch
import torch.distributed as dist

_last: list[torch.Tensor] = []


def agreed(answer: bool, device: torch.device) -> bool:
    """Rank 0's `answer` on every rank; all must ask together.

    It travels as a tensor: collectives of objects load pickles, and those run code.
    """
    told = torch.tensor([int(answer)], device=device)
    # torch 2.6 waits forever in destroy_process_group when a thread of gloo is the last to let go of a tensor.
    _last[:] = [told]
    dist.broadcast(told, 0)
    return bool(told.item())
