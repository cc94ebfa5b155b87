"""The interfaces of an all-reduce's parts: steps of chunks, the phases that run them, and a handle to wait for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor


class Pending(Protocol):
    """An all-reduce that has begun."""

    def wait(self) -> None:
        """Wait until the vector holds the mean; over NCCL, make the current stream wait instead.

        Raises PeerLost if another rank is gone.
        """

    def future(self, vector: Tensor) -> torch.futures.Future[Tensor]:
        """A future of `vector`, complete when the all-reduce is."""


class Step(Protocol):
    """The work of one phase on one chunk."""

    def post(self) -> None:
        """Prepare; called before the chunk's first phase."""

    def run(self) -> None:
        """Do the work; called when it is the chunk's turn in the phase."""


class Call:
    """A step that consists of one call."""

    def __init__(self, act: Callable[[], object]) -> None:
        self._act = act

    def post(self) -> None:
        pass

    def run(self) -> None:
        self._act()


Way = Sequence[tuple[int, Step]]  # the (phase number, step) pairs of one chunk


class Phases(Protocol):
    """Brings chunks through phases, in order through each phase: by threads over gloo, by streams over NCCL."""

    def start(self, ways: Sequence[Way]) -> Pending:
        """Begin to bring some chunks through, and return at once."""

    def run(self, ways: Sequence[Way]) -> None:
        """Bring some chunks through as fast as possible, and wait for them."""


MakePhases = Callable[[int, Sequence[dist.ProcessGroup]], Phases]  # number of phases, and the groups that they use
