"""The exact plan of buckets: from the ready times of the first steps and the cost of the all-reduce, both measured."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torusrun.training.sync.buckets import cost_table, exact, plan_file
from torusrun.training.sync.buckets.layout import Layout
from torusrun.training.sync.buckets.measured_cost import MeasuredCost
from torusrun.training.sync.buckets.plan_file import KeptPlan
from torusrun.training.sync.buckets.ready_times import ReadyTimes
from torusrun.training.sync.gradients import Gradients

PROFILED_STEPS = 6


class Planner:
    """Lays `gradients` out once: after the profiled steps, or as the plan in the file `path` says.

    Until then they are in one bucket. A resumed attempt changes the layout after the same step as an undisturbed one,
    so the bits are the same. `made_for` describes model and ranks. Rank 0 decides, reads and writes.
    """

    def __init__(self, gradients: Gradients, path: Path, made_for: dict[str, Any], rank: int) -> None:
        self._gradients, self._path, self._rank = gradients, path, rank
        self._made_for = {**made_for, "elements": [parameter.numel() for parameter in gradients.parameters]}
        self._device = gradients.parameters[0].device
        self._plan: KeptPlan | None = None
        self._first_step: int | None = None
        self._ready: ReadyTimes | None = None
        self.done = False

    def before_step(self, steps: int) -> None:
        """All ranks must call it before they take the step after `steps` steps."""
        if self.done:
            return
        if self._first_step is None:
            self._begin(steps)
        elif self._ready and steps - self._first_step >= PROFILED_STEPS:
            self._plan = self._decide(self._ready, steps)
        if self._plan and steps >= self._plan.after_step:
            self._gradients.lay_out(self._plan.layout)
            self.done = True

    def _begin(self, steps: int) -> None:
        """Use the plan of an earlier attempt, or measure the next steps."""
        self._first_step = steps
        kept = plan_file.read(self._path, self._made_for) if self._rank == 0 else None
        self._plan = self._agreed(kept)
        if not self._plan:
            self._ready = self._gradients.watch = ReadyTimes(self._device)

    def _decide(self, ready: ReadyTimes, steps: int) -> KeptPlan:
        self._gradients.watch = self._ready = None
        parameters = self._gradients.parameters
        ready_s = torch.tensor(ready.median_s(len(parameters)), dtype=torch.float64, device=self._device)
        dist.all_reduce(ready_s, dist.ReduceOp.MAX)
        total_bytes = sum(parameter.nbytes for parameter in parameters)
        table = cost_table.measured(self._gradients.all_reduce, total_bytes, parameters[0].dtype, self._device)
        plan = None
        if self._rank == 0:
            sizes = [float(parameter.nbytes) for parameter in parameters]
            plan = KeptPlan(steps, best_layout(ready_s.tolist(), sizes, MeasuredCost(table)))
            measured = {"ready_s": ready_s.tolist(), "cost_s": table}
            plan_file.write(self._path, plan, self._made_for, measured)
        agreed = self._agreed(plan)
        assert agreed, "rank 0 has a plan"
        return agreed

    def _agreed(self, plan: KeptPlan | None) -> KeptPlan | None:
        return plan_file.agreed_plan(plan, len(self._gradients.parameters), self._device)


def best_layout(ready_s: list[float], sizes_bytes: list[float], cost_s: exact.Cost) -> Layout:
    """The layout that ends first, for gradients in the order of the model; that order decides for equal ready times."""
    order = sorted(range(len(ready_s)), key=lambda number: (ready_s[number], -number))
    counts = exact.best_buckets([ready_s[n] for n in order], [sizes_bytes[n] for n in order], cost_s)
    return Layout(tuple(order), counts)
