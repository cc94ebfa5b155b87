"""The all-reduces that a run can name, as functions of bytes; used to choose grids and to predict."""

from __future__ import annotations

from collections.abc import Sequence

from orchestrator.network.cost import hierarchical
from orchestrator.network.cost.all_reduce import AllReduceTime, Cost
from orchestrator.network.cost.hierarchical import Layout
from training.recipe.train import SyncKeys

TORUS = SyncKeys()


def cost_of(sync: SyncKeys, layout: Layout, dims: Sequence[int]) -> Cost:
    """The cost function of the all-reduce in `train.sync`, over a grid of `dims`; torch's DDP is taken as flat."""
    if sync.all_reduce == "torus":
        return layout.torus(dims)
    flat = layout.torus((layout.ranks,))
    if sync.all_reduce in ("flat", "ddp"):
        return flat
    leaders = hierarchical.all_reduce(layout, dims)
    if sync.all_reduce == "hierarchical":
        return leaders
    return lambda size_bytes: (leaders if size_bytes < sync.hybrid_bytes else flat)(size_bytes)


def unchunked_s(cost: Cost, size_bytes: float) -> float:
    """Seconds with the phases one after the other; only the torus has chunks."""
    return cost.unchunked_s(size_bytes) if isinstance(cost, AllReduceTime) else cost(size_bytes)
