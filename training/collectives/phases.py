"""What the parts of an all-reduce ask of each other: steps of chunks, what carries them, and what one waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Pending(Protocol):
    """An all-reduce that has begun."""

    def wait(self) -> None:
        """Return when the vector holds the mean; over NCCL, make the current stream wait for it instead.

        Raises PeerLost if another rank is gone.
        """

    def future(self, vector: Tensor) -> torch.futures.Future[Tensor]:
        """A future of `vector`, complete when the all-reduce is."""


class Step(Protocol):
    """What one phase does with one chunk."""

    def post(self) -> None:
        """Get ready; called before the chunk's first phase."""

    def run(self) -> None:
        """Do it; called when it is the chunk's turn in the phase."""


class Call:
    """A step that is one call."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def post(self) -> None:
        pass

    def run(self) -> None:
        self._act()


Way = Sequence[tuple[int, Step]]  # of one chunk through the phases, by their numbers


class Phases(Protocol):
    """What brings chunks through phases, in order through each: threads over gloo, streams over NCCL."""

    def start(self, ways: Sequence[Way]) -> Pending:
        """Begin to bring some chunks through; returns at once."""

    def run(self, way: Way) -> None:
        """Bring one chunk through, as fast as that goes, and wait for it."""


MakePhases = Callable[[int, Sequence[dist.ProcessGroup]], Phases]  # how many phases, and the groups that they use
