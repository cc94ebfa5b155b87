"""The all-reduce of each message of a training: named by the run, or with `auto` by what was measured at the site.

It is a function of the plan, which the run's folder keeps with the measurements of its site: all ranks and all attempts
on the same grid choose alike, whatever is measured meanwhile. So a resumed attempt sums in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence

from torusrun.orchestrator.base.shown.numbers import size
from torusrun.orchestrator.place.cost.by_size import quicker
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.rates import backend_of
from torusrun.training.collectives.chunks import Spans
from torusrun.training.counted import counted

LIBRARY = {"nccl": "NCCL", "gloo": "gloo"}


def measured_as(dims: Sequence[int], nodes: int, library: str, wire: str) -> str:
    """The name under which a site keeps the times of its all-reduces."""
    return f"{Grid(tuple(dims))} on {counted(nodes, 'node')}, {library}, {wire}"


def spans_of(plan: Plan) -> Spans:
    """The all-reduces of a plan with a grid, by size; () if `train.sync` names the same for all sizes."""
    return quicker(plan.site.measured.all_reduce.get(_name(plan), ())) if _is_auto(plan) else ()


def words(plan: Plan) -> str:
    """Which all-reduce messages of each size take, and why."""
    library, named = LIBRARY[backend_of(plan)], plan.run.train.sync.all_reduce
    if not _is_auto(plan):
        return f"{named}, as the run names it"
    spans = spans_of(plan)
    if plan.ranks == 1:
        return "none: the run has one rank"
    if len(plan.grid.dims) == 1 and library == "NCCL":
        return "NCCL's own: the grid has one level"
    if not spans:
        unmeasured = f"the times of {_name(plan)} are not measured at this site (torusrun calibrate)"
        return f"torus over {plan.grid}, not compared with {library}'s own: {unmeasured}"
    ends = [*(f"to {size(span.from_bytes)} bytes" for span in spans[1:]), "bytes on"]
    begun = [(size(span.from_bytes), end) for span, end in zip(spans, ends, strict=True) if span.all_reduce == "torus"]
    sizes = " and ".join(f"from {first} {end}" for first, end in begun)
    torus = f"torus over {plan.grid} {sizes}, otherwise " if sizes else ""
    return f"{torus}{library}'s own: the quicker as measured at this site on {_name(plan)}"


def _is_auto(plan: Plan) -> bool:
    return not plan.run.command and plan.run.train.sync.all_reduce == "auto"


def _name(plan: Plan) -> str:
    return measured_as(plan.grid.dims, plan.run.nodes, backend_of(plan), plan.run.train.sync.wire)
