"""The all-reduces that a run can name, as functions of bytes; used to choose grids and to predict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple, Protocol, TypeVar

from torusrun.orchestrator.place.cost.all_reduce import AllReduceTime, Cost
from torusrun.orchestrator.place.cost.phases import PhaseLinks
from torusrun.training.collectives.chunks import HYBRID, Spans, at_size
from torusrun.training.recipe.train import SyncKeys

TORUS = SyncKeys()
CLOSE = 1.02  # a factor of time within which the model cannot separate shapes


class Layout(Protocol):
    """Ranks on the links of a cluster."""

    @property
    def ranks(self) -> int:
        """The number of ranks."""

    def torus(self, dims: Sequence[int]) -> AllReduceTime:
        """The all-reduce over a grid of all these ranks."""

    def first(self, ranks: int) -> Layout:
        """The first `ranks` ranks, and the other ranks of their last node."""

    def leaders(self, group: int) -> Layout:
        """Only every `group`-th rank."""


class TimedGrid(Protocol):
    """A grid with the time of its all-reduce, also with its phases one by one."""

    @property
    def dims(self) -> tuple[int, ...]: ...
    @property
    def total_s(self) -> float: ...
    @property
    def unchunked_s(self) -> float: ...


class GridTime(NamedTuple):
    """The time of one grid's all-reduce in seconds, also with its phases one by one."""

    dims: tuple[int, ...]
    total_s: float
    unchunked_s: float


Timed = TypeVar("Timed", bound=TimedGrid)


def best_of(timed: Sequence[Timed], ranks_per_node: int) -> Timed:
    """The best grid: of those about as fast as the fastest, the grid that gains least from overlapping levels.

    Every verb and the job choose by this function. Two levels with equally busy links overlap less than in the model:
    4x2 on two racks was predicted to be as fast as 2x2x2, and took 15 % longer
    (benchmarks/results/allreduce-2026-11-22.txt). If that is equal too, it is the grid with the fewest levels, and
    with a row for each node.
    """
    fastest_s = min(grid.total_s for grid in timed)
    close = [grid for grid in timed if grid.total_s <= fastest_s * CLOSE]
    least_s = min(grid.unchunked_s for grid in close)
    safe = [grid for grid in close if grid.unchunked_s <= least_s * CLOSE]
    return min(safe, key=lambda grid: (len(grid.dims), grid.dims[0] != ranks_per_node, grid.total_s))


def cost_of(sync: SyncKeys, layout: Layout, dims: Sequence[int], spans: Spans = ()) -> Cost:
    """The cost function of the all-reduce in `train.sync`, over a grid of `dims`; torch's DDP is taken as flat.

    `spans` name the all-reduces of `auto`, if they are known.
    """
    if sync.all_reduce == "hybrid" or (sync.all_reduce == "auto" and spans):
        spans = HYBRID if sync.all_reduce == "hybrid" else spans
        costs = {span.all_reduce: cost_of(SyncKeys(span.all_reduce), layout, dims) for span in spans}
        return lambda size_bytes: costs[at_size(spans, size_bytes)](size_bytes)
    if sync.all_reduce in ("torus", "auto"):
        return layout.torus(dims)
    if sync.all_reduce in ("flat", "ddp"):
        return layout.torus((layout.ranks,))
    return _hierarchical(layout, dims)


def unchunked_s(cost: Cost, size_bytes: float) -> float:
    """Seconds with the phases one after the other; only the torus has chunks."""
    return cost.unchunked_s(size_bytes) if isinstance(cost, AllReduceTime) else cost(size_bytes)


def _hierarchical(layout: Layout, dims: Sequence[int]) -> Cost:
    """Reduces to the first rank of each group, an all-reduce on the last level, broadcasts; one phase after the other.

    Derived. In half a level of d ranks, the torus passes on (d-1)/d of a vector; NCCL's chain of a reduce or a
    broadcast passes on all of it. gloo reduces by a reduce-scatter and a gather, so 2 (d-1)/d of the vector crosses the
    link of the first rank. It broadcasts along a binomial tree, so it sends the vector log2 d times (from memory).
    """
    down, up = list[PhaseLinks](), list[PhaseLinks]()
    for ranks in dims[:-1]:
        ring = layout.torus((ranks, layout.ranks // ranks))
        gloo = ring.backend == "gloo"
        down.append(_passing(ring.phases[0], 2 * (ranks - 1) / ranks if gloo else 1.0))
        up.insert(0, _passing(ring.phases[0], float((ranks - 1).bit_length()) if gloo else 1.0))
        layout = layout.leaders(ranks)
    last = layout.torus((dims[-1],))
    return replace(last, phases=(*down, last.phases[0], *up), busiest_s_per_byte=0.0).unchunked_s


def _passing(phase: PhaseLinks, vectors: float) -> PhaseLinks:
    """A reduce-scatter's phase in which `vectors` vectors cross its busiest link."""
    if phase.ranks == 1:
        return phase
    share = vectors * phase.ranks / (phase.ranks - 1)
    return replace(
        phase, link_s_per_byte=phase.link_s_per_byte * share, chunk_s_per_byte=phase.chunk_s_per_byte * share
    )
