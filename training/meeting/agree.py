"""One answer for all ranks, the answers of all, and whether all hold the same weights."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import torch
import torch.distributed as dist
from torch import Tensor

SENT_BYTES = 64 << 20  # in one message

_last: list[torch.Tensor] = []


def agreed(answer: bool, device: torch.device) -> bool:
    """Rank 0's `answer` on every rank; all must call it together."""
    return bool(agreed_number(answer, device))


def agreed_number(number: int, device: torch.device) -> int:
    """Rank 0's `number` on every rank; all must call it together."""
    return agreed_numbers([number], device)[0]


def agreed_numbers(numbers: Sequence[int], device: torch.device, group: dist.ProcessGroup | None = None) -> list[int]:
    """Rank 0's `numbers` on every rank of a group; all must call it together, with as many numbers.

    They travel as a tensor, because collectives of objects load pickles, and pickles run code.
    """
    shared = _kept(numbers, device)
    dist.broadcast(shared, 0, group=group)
    return [int(number) for number in shared.tolist()]


def on_all_ranks(answer: bool, device: torch.device) -> bool:
    """Whether the `answer` of every rank is true; all must call it together."""
    shared = _kept([answer], device)
    dist.all_reduce(shared, dist.ReduceOp.MIN)
    return bool(shared.item())


def everyones(own: torch.Tensor) -> torch.Tensor:
    """[ranks, ...]: the tensor `own` of each rank; all of them must call it together."""
    gathered = [torch.empty_like(own) for _ in range(dist.get_world_size())]
    dist.all_gather(gathered, own)
    return torch.stack(gathered)


def sent(content: bytes, source: int, device: torch.device) -> bytes:
    """The `content` that the rank `source` has, on every rank; all must call it together."""
    size = torch.tensor([len(content)], device=device)
    dist.broadcast(size, source)
    pieces = []
    for begin in range(0, int(size.item()), SENT_BYTES):
        length = min(SENT_BYTES, int(size.item()) - begin)
        piece = bytearray(content[begin : begin + length] if dist.get_rank() == source else length)
        travelling = torch.frombuffer(piece, dtype=torch.uint8).to(device)
        dist.broadcast(travelling, source)
        _last[:] = [size, travelling]
        pieces.append(travelling.cpu().numpy().tobytes())
    return b"".join(pieces)


def _kept(numbers: Sequence[int], device: torch.device) -> torch.Tensor:
    shared = torch.tensor([int(number) for number in numbers], device=device)
    # torch 2.6 waits forever in destroy_process_group if a thread of gloo is the last to release a tensor.
    _last[:] = [shared]
    return shared


BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
PRIME = 1_000_003  # swapped tensors change the sum


def differing(tensors: Iterable[Tensor]) -> list[int]:
    """The ranks whose bits differ from those of most ranks, or from rank 0's without a majority.

    All ranks call it together, with the same tensors in the same order, and get the same answer. Waits for the device.
    """
    sums = everyones(checksum(tensors)).tolist()
    most, count = Counter(sums).most_common(1)[0]
    right = most if 2 * count > len(sums) else sums[0]
    return [rank for rank, own in enumerate(sums) if own != right]


def checksum(tensors: Iterable[Tensor]) -> Tensor:
    """A checksum [] (int64) of the bits of `tensors`, on their device; nothing of their size is copied."""
    total: Tensor | None = None
    for tensor in tensors:
        bits = tensor.detach().contiguous().view(-1).view(BITS[tensor.element_size()]).sum(dtype=torch.int64)
        total = bits if total is None else total * PRIME + bits
    if total is None:
        raise ValueError("there are no tensors to compare")
    return total
