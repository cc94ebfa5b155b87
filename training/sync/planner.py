"""The exact plan of buckets: from the ready times of the first steps and the cost of the all-reduce, both measured.

Rank 0 keeps it in the run's folder: a later attempt reads it, so that sums keep their order.
"""

from __future__ import annotations

import json
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from torusrun.training.collectives import device as devices
from torusrun.training.collectives.interface import AllReduce
from torusrun.training.files.trusted import put
from torusrun.training.meeting.agree import sent
from torusrun.training.reporting.output import warn
from torusrun.training.sync import plans
from torusrun.training.sync.bucket import ReadyTimes
from torusrun.training.sync.gradients import Gradients
from torusrun.training.sync.plans import Layout

SCHEMA = 1
PLAN_FILE = "buckets.json"  # beside the metrics
LARGEST_BYTES = 16_000_000


@dataclass(frozen=True)
class KeptPlan:
    """A layout, and the step of the training after which it is used."""

    after_step: int
    layout: Layout

    def document(self) -> dict[str, Any]:
        return {"after_step": self.after_step, "order": self.layout.order, "buckets": self.layout.counts}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> KeptPlan:
        """The plan of a `document`. Raises KeyError, TypeError or ValueError."""
        after_step, order, counts = document["after_step"], document["order"], document["buckets"]
        if not all(type(number) is int for number in (after_step, *order, *counts)):
            raise TypeError
        return cls(after_step, Layout(tuple(order), tuple(counts)))


def read_plan(path: Path, made_for: Mapping[str, Any]) -> KeptPlan | None:
    """The plan in the file; None without a file.

    None too, with a message on stderr, if the file is not readable or its plan is for others than `made_for`.
    """
    if not path.exists():
        return None
    try:
        with open(path, "rb") as file:
            document = json.loads(file.read(LARGEST_BYTES))
        if document["schema"] != SCHEMA or document["made_for"] != made_for:
            _say(f"{path} is the plan of another model, or for other ranks")
            return None
        return KeptPlan.of(document)
    except (OSError, ValueError, KeyError, TypeError):
        _say(f"{path} does not hold a readable plan")
        return None


def write_plan(path: Path, plan: KeptPlan, made_for: Mapping[str, Any], measured: Mapping[str, Any]) -> None:
    """Keep the plan, with the values `measured` for it. If the disk is full, training continues without the file."""
    try:
        put(path, json.dumps({"schema": SCHEMA, "made_for": made_for, **plan.document(), **measured}).encode(), 0o644)
    except OSError as error:
        why = f"the plan of buckets could not be written to {path}: {error.strerror or error}"
        warn(f"training: {why}; a resumed attempt measures again, and its sums may have another order")


def agreed_plan(plan: KeptPlan | None, device: torch.device) -> KeptPlan | None:
    """Rank 0's `plan` on every rank; all must call it together. It travels as JSON: pickles would run code."""
    document = json.loads(sent(json.dumps(plan and plan.document()).encode(), 0, device))
    return KeptPlan.of(document) if document else None


def _say(what: str) -> None:
    warn(f"training: {what}; gradients are measured again")


class MeasuredCost:
    """Seconds by bytes: straight lines between (bytes, seconds) of `table`, extended beyond its largest size.

    More bytes never take less; below the smallest size the time is that of it. Raises ValueError for an empty table.
    """

    def __init__(self, table: Sequence[tuple[float, float]]) -> None:
        if not table:
            raise ValueError("no all-reduce was measured")
        self._bytes = [size for size, _ in table]
        self._seconds = list(accumulate((time_s for _, time_s in table), max))

    def __call__(self, size_bytes: float) -> float:
        sizes, times = self._bytes, self._seconds
        if len(sizes) == 1 or size_bytes <= sizes[0]:
            return times[0]
        i = min(bisect_left(sizes, size_bytes), len(sizes) - 1)
        slope = (times[i] - times[i - 1]) / (sizes[i] - sizes[i - 1])
        return times[i] + slope * (size_bytes - sizes[i])


SMALLEST_BYTES, GROWTH = 4096, 4
REPEATS = 3  # after a first all-reduce, which opens connections
ENOUGH_S = 0.5  # no larger sizes after an all-reduce that took so long: their times follow from it


def cost_table(
    all_reduce: AllReduce, largest_bytes: int, dtype: torch.dtype, device: torch.device
) -> list[tuple[int, float]]:
    """(bytes, seconds), the slowest rank's, of growing vectors up to the largest; all ranks must call it together."""
    table: list[tuple[int, float]] = []
    size_bytes = min(SMALLEST_BYTES, largest_bytes)
    while True:
        vector = torch.zeros(all_reduce.padded(max(1, size_bytes // dtype.itemsize)), dtype=dtype, device=device)
        table.append((vector.nbytes, _time_s(all_reduce, vector, device)))
        if size_bytes == largest_bytes or table[-1][1] > ENOUGH_S:
            return table
        size_bytes = min(size_bytes * GROWTH, largest_bytes)


def _time_s(all_reduce: AllReduce, vector: torch.Tensor, device: torch.device) -> float:
    """The median time, the same on all ranks."""
    times_s = []
    for _ in range(1 + REPEATS):
        devices.wait(device)
        started_s = time.perf_counter()
        all_reduce.mean_(vector)
        devices.wait(device)
        times_s.append(time.perf_counter() - started_s)
    return slowest_s(times_s, device)


def slowest_s(
    times_s: list[float], device: torch.device, of: Callable[[list[float]], float] = statistics.median
) -> float:
    """The median `of` all times but the first. Each time is that of the slowest rank: the others wait for it."""
    slowest = torch.tensor(times_s[1:], dtype=torch.float64, device=device)
    dist.all_reduce(slowest, dist.ReduceOp.MAX)
    return float(of(slowest.tolist()))


PROFILED_STEPS = 6


class Planner:
    """Lays `gradients` out once: after the profiled steps, or as the plan in the file `path` says.

    Until then they are in one bucket. A resumed attempt changes the layout after the same step as an undisturbed run,
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
        kept = read_plan(self._path, self._made_for) if self._rank == 0 else None
        self._plan = agreed_plan(kept, self._device)
        if not self._plan:
            self._ready = self._gradients.watch = ReadyTimes(self._device)

    def _decide(self, ready: ReadyTimes, steps: int) -> KeptPlan:
        self._gradients.watch = self._ready = None
        parameters = self._gradients.parameters
        ready_s = torch.tensor(ready.median_s(len(parameters)), dtype=torch.float64, device=self._device)
        dist.all_reduce(ready_s, dist.ReduceOp.MAX)
        total_bytes = sum(parameter.nbytes for parameter in parameters)
        table = cost_table(self._gradients.all_reduce, total_bytes, parameters[0].dtype, self._device)
        plan = None
        if self._rank == 0:
            sizes = [float(parameter.nbytes) for parameter in parameters]
            plan = KeptPlan(steps, best_layout(ready_s.tolist(), sizes, MeasuredCost(table)))
            write_plan(self._path, plan, self._made_for, {"ready_s": ready_s.tolist(), "cost_s": table})
        agreed = agreed_plan(plan, self._device)
        assert agreed, "rank 0 has a plan"
        return agreed


def best_layout(ready_s: list[float], sizes_bytes: list[float], cost_s: plans.Cost) -> Layout:
    """The layout that ends first, for gradients in the order of the model; that order decides for equal ready times."""
    order = sorted(range(len(ready_s)), key=lambda number: (ready_s[number], -number))
    counts = plans.best_buckets([ready_s[n] for n in order], [sizes_bytes[n] for n in order], cost_s)
    return Layout(tuple(order), counts)
