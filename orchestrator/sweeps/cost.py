"""What a whole sweep costs: node-hours, and the time from its first start to its last end."""

from __future__ import annotations

import contextlib
import heapq
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from statistics import median

from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.folder import index, metrics
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.folder.shown_plan import site_name
from torusrun.orchestrator.run.folder.sweep_folder import KeptCost
from torusrun.orchestrator.run.plan.command_runs import command_forecast
from torusrun.orchestrator.run.plan.forecast import forecast_of
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.state import account
from torusrun.orchestrator.run.state.record import read_record
from torusrun.orchestrator.sweeps.plans import PlannedSweep
from torusrun.training.recipe.train import OptimizerKeys, ScheduleKeys

MOST_RUNS = 20
MOST_LOOKED_AT = 200  # runs of other sites and images cost time, too


@dataclass(frozen=True)
class Starts:
    """The median time of start and stop of the newest `runs` that show it."""

    each_s: float
    runs: int


def starts(plan: Plan) -> Starts | None:
    """The start and stop of completed trainings on the site of `plan`, all with an image, or all without one, as it is.

    None if none of the user's newest runs shows them.
    """
    known = reversed(index.runs()[-MOST_LOOKED_AT:])
    found = list(islice((s for run in known if (s := _beside_training_s(run, plan)) is not None), MOST_RUNS))
    return Starts(median(found), len(found)) if found else None


def _beside_training_s(run: RunFolder, plan: Plan) -> float | None:
    """What a run took beside its training; None if it does not show it, or is not like the run of `plan`."""
    with contextlib.suppress(SiteError):  # it cannot be read
        record = read_record(run)
        like = record.site == site_name(plan.run.site) and run.image.exists() == (plan.run.image is not None)
        if like and record.end and record.end.state is State.COMPLETED and record.attempt == 1:
            found = account.account(record.events, metrics.read(run.metrics), time.time(), State.COMPLETED)
            if found.seconds[account.COMPUTE] > 0:
                return found.seconds[account.START] + found.seconds[account.STOPPING]
    return None


HOUR_S = 3600.0


@dataclass(frozen=True)
class SweepCost:
    """The cost of all members: predicted, or at most (by their time limits) if `unknown` says why it is not known.

    `wall_s` is the time from the first start to the last end, without the queue, if `at_once` members always run.
    `starts` are the starts and stops in it; None if none are: no run has shown them, or time limits contain them.
    """

    node_hours: float
    wall_s: float
    at_once: int
    unknown: str = ""
    starts: Starts | None = None

    @property
    def kept(self) -> KeptCost:
        """What the sweep's record has of it."""
        return KeptCost(self.node_hours, self.wall_s, bool(self.unknown), self.starts.each_s if self.starts else None)


def cost(sweep: PlannedSweep) -> SweepCost:
    """The cost of a sweep by the forecasts of its members, or by their time limits if one has no forecast."""
    plans, unknown, begin = [member.plan for member in sweep.members], "", None
    try:
        if sweep.study:
            raise UserError("its study chooses the values in the jobs")
        times_s, begin = _predicted_s(plans), starts(plans[0])
        times_s = [time_s + (begin.each_s if begin else 0.0) for time_s in times_s]
    except TorusrunError as error:
        begin = None
        times_s, unknown = [plan.run.time_s * plan.jobs for plan in plans], str(error)
    at_once = sweep.at_once or len(plans)
    node_s = sum(time_s * _nodes(plan) for time_s, plan in zip(times_s, plans, strict=True))
    return SweepCost(node_s / HOUR_S, _wall_s(times_s, at_once), at_once, unknown, begin)


def _predicted_s(plans: Sequence[Plan]) -> list[float]:
    """The predicted time of each. A forecast may take a second: members whose rates alone differ have the same one."""
    known: dict[str, float] = {}
    for plan in plans:
        if (key := _timed(plan)) not in known:
            known[key] = _total_s(plan)
    return [known[_timed(plan)] for plan in plans]


def _total_s(plan: Plan) -> float:
    """The predicted time of one member. Raises UserError if it is not known."""
    if not plan.run.command:
        return forecast_of(plan).total_s
    found = command_forecast(plan)
    if found.total_s is None:
        raise UserError(found.doubts[-1])
    return found.total_s


def _timed(plan: Plan) -> str:
    """The run of a plan without what takes no time."""
    train = replace(plan.run.train, optimizer=OptimizerKeys(), schedule=ScheduleKeys(), label_smoothing=0.0, seed=0)
    return repr(replace(plan.run, name="", env={}, train=train))


def _nodes(plan: Plan) -> int:
    return plan.all_nodes + plan.run.keep_going.spares


def _wall_s(times_s: Sequence[float], at_once: int) -> float:
    """The time until the last one ends if each begins as soon as one of those `at_once` before it has ended."""
    ends: list[float] = []
    for time_s in times_s:
        begins = heapq.heappop(ends) if len(ends) >= at_once else 0.0
        heapq.heappush(ends, begins + time_s)
    return max(ends)
