"""The mean of a vector over all ranks, by one of several algorithms behind one interface."""

from __future__ import annotations

from typing import Literal

import torch.distributed as dist

from torusrun.training.collectives.backend import Flat, Hierarchical, Hybrid
from torusrun.training.collectives.interface import AllReduce
from torusrun.training.collectives.nccl_torus import NcclTorus
from torusrun.training.collectives.pipeline import Pipeline
from torusrun.training.collectives.streams import Streams
from torusrun.training.collectives.torus import Torus


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
