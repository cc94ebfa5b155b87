"""The ranks as a mesh of one to three levels (rows, columns and racks), and what all-reduces over it have in common."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from datetime import timedelta
from math import prod
from typing import Protocol

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.reporting.exits import PeerLost

MOST_LEVELS = 3


class Mesh:
    """Ranks 0 to N-1 laid out as `dims`, 1 to 3 numbers of at least 1 whose product is N; the first varies fastest.

    In a mesh (X, Y, Z) rank = (z * Y + y) * X + x. A group of level 0 is a row: the X ranks with the same (y, z). A
    group of level 1 is a column. A group of level 2 has one rank of every rack. Raises ValueError for other dims.
    """

    def __init__(self, dims: Sequence[int]) -> None:
        self.dims, self.ranks = tuple(dims), prod(dims)
        if not 1 <= len(dims) <= MOST_LEVELS or any(ranks < 1 for ranks in dims):
            raise ValueError(f"a grid has 1 to {MOST_LEVELS} levels of at least 1 rank, not {self}")

    def __str__(self) -> str:
        return " x ".join(map(str, self.dims))

    def coordinates(self, rank: int) -> tuple[int, ...]:
        """The coordinate of a rank in each level."""
        coordinates = []
        for ranks in self.dims:
            rank, coordinate = divmod(rank, ranks)
            coordinates.append(coordinate)
        return tuple(coordinates)

    def group(self, level: int, rank: int) -> list[int]:
        """The ranks of the group of a level that contains `rank`, in the order of the group."""
        stride = prod(self.dims[:level])
        first = rank - self.coordinates(rank)[level] * stride
        return [first + stride * i for i in range(self.dims[level])]


def wire_bytes(buffer_bytes: int, dims: Sequence[int]) -> tuple[float, ...]:
    """Bytes that one rank sends in each level to reduce n = `buffer_bytes` by the torus.

    A level of d ranks gets n over the product of the levels before it, and sends 2 (d-1)/d of that: half in the
    reduce-scatter and half in the all-gather. It receives as many bytes. If n does not divide by the ranks, this is the
    mean over them.
    """
    return tuple(2 * (d - 1) / d * buffer_bytes / prod(dims[:level]) for level, d in enumerate(dims))


NO_TAG = 2**31 - 1  # no rank sends with this tag


def own_group(ranks: list[int]) -> dist.ProcessGroup:
    """A new group of `ranks`, which include this rank; only its members call it, all in the same order.

    It has the default group's timeout: torch would give it 30 minutes.
    """
    group: dist.ProcessGroup = dist.new_group(ranks, timeout=_timeout(), use_local_synchronization=True)
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

    Each phase (a level, down or up) has its own process group, so that phases that run at the same time share no
    connection; None for a level of one rank.
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
