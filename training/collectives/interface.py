"""The interface of all-reduces, and of their parts: dtypes on the wire, steps of chunks, and phases that run them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives.mesh import Mesh, own_group


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


DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


def wire_dtype(vector: Tensor, wire: torch.dtype) -> torch.dtype:
    """A vector's dtype on the wire: `wire` for fp32, else its own. Raises ValueError for a dtype without support."""
    if vector.dtype not in DTYPES.values():
        raise ValueError(f"a vector of {vector.dtype} cannot be reduced: use float32, float16 or bfloat16")
    return wire if vector.dtype == torch.float32 else vector.dtype


class AllReduce:
    """Means over all ranks of the default process group, as a mesh of `dims`; all ranks make it at the same time.

    `wire` is the dtype in which fp32 vectors travel. Raises ValueError if the product of `dims` is not the number of
    ranks.
    """

    _phases: Phases

    def __init__(self, dims: Sequence[int], wire: str) -> None:
        mesh, rank = Mesh(dims), dist.get_rank()
        if mesh.ranks != dist.get_world_size():
            raise ValueError(f"grid {mesh} does not hold the {dist.get_world_size()} ranks of the group")
        self.ranks, self._dims, self._wire = mesh.ranks, mesh.dims, DTYPES[wire]
        self._mine = mesh.coordinates(rank)
        self._members = [mesh.group(level, rank) for level in range(len(mesh.dims))]
        self._sent_bytes = [0.0] * len(mesh.dims)

    @property
    def wire_bytes(self) -> Sequence[float]:
        """The bytes that this rank has sent so far, by level of the mesh."""
        return self._sent_bytes

    def name(self, vector: Tensor) -> str:
        """The name of the algorithm that reduces `vector`, for a trace: 'flat', 'torus', ..."""
        return type(self).__name__.lower()

    def padded(self, elements: int) -> int:
        """The smallest length from `elements` on that needs no copy."""
        return elements

    def start(self, vector: Tensor) -> Pending:
        """Begin to replace a contiguous 1-D `vector` (fp32, fp16 or bf16) by its mean over all ranks.

        The mean has the same bits on every rank. Several may be in flight; all ranks start them in the same order.
        """
        return self._phases.start(self._ways(vector))

    def mean_(self, vector: Tensor) -> None:
        """`start` and `wait`."""
        self._phases.run(self._ways(vector))

    def _ways(self, vector: Tensor) -> list[Way]:
        """The way of each chunk of a vector through the phases."""
        raise NotImplementedError

    def _travelling_bytes(self, vector: Tensor) -> int:
        return vector.numel() * wire_dtype(vector, self._wire).itemsize


class DownAndUp(AllReduce):
    """An all-reduce down the levels of the mesh, in each to smaller shards of a vector, and back up.

    Each phase (a level, down or up) has its own process group, None for a level of one rank.
    """

    def __init__(self, dims: Sequence[int], phases: MakePhases, wire: str = "fp32") -> None:
        super().__init__(dims, wire)
        self._down, self._up = (
            [own_group(ranks) if len(ranks) > 1 else None for ranks in self._members] for _ in range(2)
        )
        self._last_phase = 2 * len(self._dims) - 1
        self._phases = phases(self._last_phase + 1, [group for group in (*self._down, *self._up) if group])

    def padded(self, elements: int) -> int:
        """The smallest length from `elements` on with equal shards on all ranks."""
        return -(-elements // self.ranks) * self.ranks
