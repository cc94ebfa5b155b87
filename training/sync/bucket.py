"""Some gradients in one flat vector, and its all-reduce."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from torusrun.training.collectives.interface import AllReduce
from torusrun.training.collectives.phases import Pending
from torusrun.training.sync.arena import Arena


class Bucket:
    """[gradients | other tensors | padding], as views of `vector`; `numbers` are those of the gradients.

    `waiting_for` holds the gradients that are not complete yet in this step.
    """

    def __init__(
        self, numbers: Sequence[int], like: Sequence[Tensor], all_reduce: AllReduce, dtype: torch.dtype
    ) -> None:
        arena = Arena(like, all_reduce.padded(sum(tensor.numel() for tensor in like)), dtype)
        self.numbers, self.vector = tuple(numbers), arena.vector
        self.gradients, self.others = arena.views[: len(numbers)], arena.views[len(numbers) :]
        self.waiting_for: set[int] = set()
        self._all_reduce = all_reduce
        self._pending: Pending | None = None

    def facts(self) -> dict[str, object]:
        """The number of its gradients, its length in memory, and its all-reduce algorithm."""
        how = self._all_reduce.name(self.vector)
        return {"gradients": len(self.numbers), "bytes": self.vector.nbytes, "all_reduce": how}

    def start(self) -> None:
        """Begin to replace the vector by its mean over the ranks."""
        self._pending = self._all_reduce.start(self.vector)

    def reduce(self) -> None:
        """Replace the vector by its mean over the ranks. Raises PeerLost."""
        self._all_reduce.mean_(self.vector)

    def wait(self) -> None:
        """Wait until the vector is the mean; on a GPU only the work that is queued next waits. Raises PeerLost."""
        if self._pending is not None:
            self._pending.wait()
            self._pending = None
