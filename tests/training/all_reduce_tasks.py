"""What the ranks of a pool do to test the all-reduces; every rank knows all ranks' numbers, and so the exact mean."""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from torusrun.training.collectives import chunks
from torusrun.training.collectives.all_reduce import build
from torusrun.training.collectives.chunks import Span
from torusrun.training.collectives.interface import DTYPES
from torusrun.training.collectives.nccl_torus import NcclTorus
from torusrun.training.collectives.pipeline import Pipeline
from torusrun.training.collectives.torus import Ring
from torusrun.training.reporting.exits import PeerLost

# How far rounding moves a number, relative and at least.
HYBRID_BYTES = 2000
HYBRID = (Span(0, "hierarchical"), Span(HYBRID_BYTES, "flat"))
AUTO = (Span(0, "flat"), Span(HYBRID_BYTES, "torus"), Span(20 * HYBRID_BYTES, "flat"))
ROUNDING = {"fp32": (2.0**-24, 2.0**-150), "fp16": (2.0**-11, 2.0**-25), "bf16": (2.0**-8, 2.0**-134)}


@dataclass(frozen=True)
class Vector:
    """Numbers between `-scale` and `scale`, others on each rank."""

    elements: int
    dtype: str
    scale: float
    seed: int

    def of(self, rank: int) -> Tensor:
        generator = torch.Generator().manual_seed(self.seed * 100 + rank)
        return ((2 * torch.rand(self.elements, generator=generator) - 1) * self.scale).to(DTYPES[self.dtype])

    def excess(self, found: Tensor, world: int, wire: str, roundings: float) -> float:
        """How many times the error that so many roundings allow the largest error is."""
        exact = sum(self.of(rank).double() for rank in range(world)) / world
        relative, least = ROUNDING[wire if self.dtype == "fp32" else self.dtype]
        allowed = roundings * max(relative * self.scale, least)
        return ((found.double() - exact).abs().max() / allowed).item()


@contextmanager
def built(name: str, dims: Sequence[int], wire: str) -> Iterator[Any]:
    """An all-reduce, whose threads end with the block. "nccl" is that for NCCL, over gloo's collectives.

    Its groups stay: torch would give new ones of the same ranks the old names, and find the old addresses there.
    """
    spans = {"hybrid": HYBRID, "auto": AUTO}.get(name, ())
    made: Any = NcclTorus(dims, Pipeline) if name == "nccl" else build(name, tuple(dims), wire, spans)  # type: ignore[arg-type]
    try:
        yield made
    finally:
        for each in made.made.values() if spans else (made,):
            each._phases.close()


def means(
    rank: int, name: str, dims: Sequence[int], wire: str, vectors: Sequence[Vector], chunk_bytes: int, roundings: float
) -> dict[str, Any]:
    """Reduce all vectors at the same time, and again one by one."""
    chunks.SMALLEST_CHUNK_BYTES = chunk_bytes
    with built(name, dims, wire) as all_reduce:
        together, alone = ([vector.of(rank) for vector in vectors] for _ in range(2))
        for pending in [all_reduce.start(vector) for vector in together]:
            pending.wait()
        once_bytes = list(all_reduce.wire_bytes)
        for vector in alone:
            all_reduce.mean_(vector)
    return {
        "excess": max(
            v.excess(f, dist.get_world_size(), wire, roundings) for v, f in zip(vectors, together, strict=True)
        ),
        "bits": bits(together),
        "again": bits(alone),
        "names": [all_reduce.name(vector) for vector in together],
        "bytes": once_bytes,
    }


def lose_one(rank: int, name: str, dims: Sequence[int], how: str) -> list[str]:
    """The last rank ends, or stops, in the middle of three all-reduces; what waiting for each says to the others."""
    all_reduce = build(name, tuple(dims))  # type: ignore[arg-type]
    vectors = [torch.ones(2_000_000) for _ in range(3)]
    all_reduce.mean_(vectors[0])
    pending = [all_reduce.start(vector) for vector in vectors]
    if rank == dist.get_world_size() - 1:
        os.kill(os.getpid(), getattr(signal, how))
    said = []
    for each in pending:
        try:
            each.wait()
        except PeerLost as error:
            said.append(str(error))
    return said


def bits(vectors: Sequence[Tensor]) -> str:
    digest = hashlib.sha256()
    for vector in vectors:
        digest.update(vector.view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def sent(rank: int, dims: Sequence[int], elements: int) -> list[tuple[int, int]]:
    """(To which rank, bytes) of every message of the rank's torus, in the order of its chunks and phases."""
    found: dict[int, list[tuple[int, int]]] = {}
    really = Ring.send

    def noted(ring: Ring, part: Tensor, chunk: int) -> dist.Work | None:
        found.setdefault(chunk, []).append((ring._ranks[ring.right], part.nbytes))
        return really(ring, part, chunk)

    Ring.send = noted  # type: ignore[method-assign]
    try:
        build("torus", tuple(dims)).mean_(torch.ones(elements))
    finally:
        Ring.send = really  # type: ignore[method-assign]
    return [message for chunk in sorted(found) for message in found[chunk]]
