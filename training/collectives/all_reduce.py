"""The mean of a vector over all ranks, by one of several algorithms behind one interface."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

import torch.distributed as dist
from torch import Tensor

from .backend import Flat, Hierarchical
from .hybrid import Hybrid
from .nccl_torus import NcclTorus
from .phases import Pending as Pending
from .pipeline import Pipeline
from .streams import Streams
from .torus import Torus


class AllReduce(Protocol):
    """Means over all ranks. `wire_bytes` counts the bytes that this rank has sent so far, by level of the mesh."""

    ranks: int

    @property
    def wire_bytes(self) -> Sequence[float]: ...

    def padded(self, elements: int) -> int:
        """The smallest length from `elements` on that needs no copy."""

    def start(self, vector: Tensor) -> Pending:
        """Begin to replace a contiguous 1-D `vector` (fp32, fp16 or bf16) by its mean over all ranks.

        The mean has the same bits on every rank. Several may be in flight; all ranks start them in the same order.
        """

    def mean_(self, vector: Tensor) -> None:
        """`start` and `wait`."""


def name_of(all_reduce: AllReduce, vector: Tensor) -> str:
    """The name of the algorithm that reduces `vector`, for a trace: 'flat', 'torus', ..."""
    used = all_reduce.chosen(vector) if isinstance(all_reduce, Hybrid) else all_reduce
    return type(used).__name__.lower()


def build(
    name: Literal["torus", "flat", "hierarchical", "hybrid"],
    dims: tuple[int, ...],
    wire: Literal["fp32", "fp16", "bf16"] = "fp32",
    hybrid_bytes: int = 0,
) -> AllReduce:
    """An all-reduce over the default process group as a mesh of `dims`; every rank must build it at the same time.

    `wire` is the dtype in which fp32 vectors travel; only hybrid reads `hybrid_bytes`. Raises ValueError if the product
    of `dims` is not the number of ranks.
    """
    nccl = dist.get_backend() == "nccl"
    phases = Streams if nccl else Pipeline
    if name == "flat":
        return Flat(dims, phases, wire)
    if name == "hierarchical":
        return Hierarchical(dims, phases, wire)
    if name == "hybrid":
        return Hybrid(dims, phases, wire, hybrid_bytes)
    return (NcclTorus if nccl else Torus)(dims, phases, wire)
