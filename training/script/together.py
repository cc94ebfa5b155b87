"""What the ranks of a script decide together."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist

from torusrun.training.config import too_few
from torusrun.training.meeting.agree import agreed_numbers

CPU = torch.device("cpu")


class Together:
    """What the ranks of a script decide together, by a gloo group of their own: so nothing waits for a GPU.

    They are all ranks of its process group; without a process group this rank alone. All must make it together. Raises
    RuntimeError if this rank has not met the others yet.
    """

    def __init__(self) -> None:
        met = dist.is_available() and dist.is_initialized()
        if not met and (world := os.environ.get("WORLD_SIZE", "1")) != "1":
            raise RuntimeError(f"there are {world} ranks (WORLD_SIZE): call init_process_group before resume()")
        if met and (why := too_few(dist.get_world_size())):
            raise RuntimeError(why)
        self.group = dist.new_group(backend="gloo") if met else None
        self.rank, self.ranks = (dist.get_rank(), dist.get_world_size()) if met else (0, 1)
        self._least = torch.zeros(2, dtype=torch.int64)
        self._sent: dist.Work | None = None
        self._kept: list[torch.Tensor] = []  # see agree.py: no thread of gloo may be the last that releases a tensor

    def numbers(self, own: Sequence[int]) -> list[int]:
        """Rank 0's numbers on every rank; all must call it together, with as many."""
        return agreed_numbers(own, CPU, self.group) if self.group else list(own)

    def texts(self, own: str) -> list[str]:
        """The texts of all ranks, on every rank; all must call it together."""
        if self.group is None:
            return [own]
        content = torch.frombuffer(bytearray(own.encode()), dtype=torch.uint8)
        lengths = self._all(torch.tensor([len(content)]))
        longest = torch.zeros(int(max(lengths)), dtype=torch.uint8)
        longest[: len(content)] = content
        gathered = zip(self._all(longest), lengths, strict=True)
        return [text[: int(length)].numpy().tobytes().decode() for text, length in gathered]

    def _all(self, own: torch.Tensor) -> list[torch.Tensor]:
        gathered = [torch.empty_like(own) for _ in range(self.ranks)]
        dist.all_gather(gathered, own, group=self.group)
        self._kept += [own, *gathered]
        del self._kept[: -2 * len(gathered) - 2]
        return gathered

    def least_before(self, first: int, second: int) -> tuple[int, int]:
        """The least of each number that any rank passed in the call before this one; all must call it together.

        It answers one call late, so that no rank waits for a slower rank: at first with 0.
        """
        if self.group is None:
            return first, second
        least = self.wait()
        self._least[0], self._least[1] = first, second
        self._sent = dist.all_reduce(self._least, dist.ReduceOp.MIN, group=self.group, async_op=True)
        return least

    def wait(self) -> tuple[int, int]:
        """The least of each number in the newest call of `least_before`, once all have called it."""
        if self._sent:
            self._sent.wait()
        return int(self._least[0]), int(self._least[1])
