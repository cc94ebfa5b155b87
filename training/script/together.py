"""What the ranks of a script decide together: by a gloo group of their own, so that nothing waits for a GPU."""

from __future__ import annotations

import os
from collections.abc import Sequence

import torch
import torch.distributed as dist

from torusrun.training.meeting.agree import agreed_numbers
from torusrun.training.meeting.descriptors import too_few

CPU = torch.device("cpu")


class Together:
    """All ranks of the script's process group; one rank without a process group. All must make it together.

    Raises RuntimeError if there are other ranks that this one has not met yet.
    """

    def __init__(self) -> None:
        met = dist.is_available() and dist.is_initialized()
        if not met and (world := os.environ.get("WORLD_SIZE", "1")) != "1":
            raise RuntimeError(f"there are {world} ranks (WORLD_SIZE): call init_process_group before resume()")
        if met and (why := too_few(dist.get_world_size())):
            raise RuntimeError(why)
        self._group = dist.new_group(backend="gloo") if met else None
        self.rank, self.ranks = (dist.get_rank(), dist.get_world_size()) if met else (0, 1)
        self._flag = torch.zeros(1)
        self._sent: dist.Work | None = None

    def numbers(self, own: Sequence[int]) -> list[int]:
        """Rank 0's numbers on every rank; all must call it together, with as many."""
        return agreed_numbers(own, CPU, self._group) if self._group else list(own)

    def any_before(self, own: bool) -> bool:
        """Whether any rank passed True in the call before this one; all must call it together.

        One call late, because then no rank waits for a slower one.
        """
        if self._group is None:
            return own
        found = self.wait()
        self._flag.fill_(own)
        self._sent = dist.all_reduce(self._flag, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return found

    def wait(self) -> bool:
        """Whether any rank passed True in the newest call of `any_before`, once all have called it."""
        if self._sent is None:
            return False
        self._sent.wait()
        return bool(self._flag.item())
