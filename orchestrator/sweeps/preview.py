"""A sweep before it is submitted: its members as a table, what all of them cost, and how long they take."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import TorusrunError, UserError
from torusrun.orchestrator.base.shown.numbers import duration
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.run.plan.command_runs import command_forecast
from torusrun.orchestrator.run.plan.forecast import forecast_of
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.sweeps.plans import PlannedMember, PlannedSweep
from torusrun.training.counted import counted
from torusrun.training.recipe.train import OptimizerKeys, ScheduleKeys

HOUR_S = 3600.0


@dataclass(frozen=True)
class SweepCost:
    """The cost of all members: predicted, or at most (by their time limits) if `unknown` says why it is not known.

    `wall_s` is the time from the first start to the last end, if `at_once` members always run, without the queue,
    starts and stops.
    """

    node_hours: float
    wall_s: float
    at_once: int
    unknown: str = ""


def cost(sweep: PlannedSweep) -> SweepCost:
    """The cost of a sweep by the forecasts of its members, or by their time limits if a forecast is missing."""
    plans, unknown = [member.plan for member in sweep.members], ""
    try:
        times_s = _predicted_s(plans)
    except TorusrunError as error:
        times_s, unknown = [plan.run.time_s * plan.jobs for plan in plans], str(error)
    at_once = sweep.at_once or len(plans)
    node_s = sum(time_s * plan.asked_nodes for time_s, plan in zip(times_s, plans, strict=True))
    return SweepCost(node_s / HOUR_S, _wall_s(times_s, at_once), at_once, unknown)


def _predicted_s(plans: Sequence[Plan]) -> list[float]:
    """The predicted time of each. A forecast may take a second, so members whose rates alone differ share theirs."""
    known: dict[str, float] = {}
    for plan in plans:
        if (key := _timed(plan)) not in known:
            known[key] = _total_s(plan)
    return [known[_timed(plan)] for plan in plans]


def _total_s(plan: Plan) -> float:
    """The predicted time of one member. Raises UserError if it is not known."""
    if not plan.run.command:
        return forecast_of(plan).total_s
    of_command = command_forecast(plan)
    if of_command.total_s is None:
        raise UserError(of_command.doubts[-1])
    return of_command.total_s


def _timed(plan: Plan) -> str:
    """The run of a plan without what takes no time."""
    train = replace(plan.run.train, optimizer=OptimizerKeys(), schedule=ScheduleKeys(), label_smoothing=0.0, seed=0)
    return repr(replace(plan.run, name="", env={}, train=train))


def _wall_s(times_s: Sequence[float], at_once: int) -> float:
    """The time until the last member ends, if each begins as soon as fewer than `at_once` run."""
    ends: list[float] = []
    for time_s in times_s:
        begins = heapq.heappop(ends) if len(ends) >= at_once else 0.0
        heapq.heappush(ends, begins + time_s)
    return max(ends)


MOST_SHOWN = 12  # members; of more, the first and the last
EACH_SIDE = 5


def members(sweep: PlannedSweep) -> Table[tuple[int, PlannedMember]]:
    """The members with their settings."""
    rows = list(enumerate(sweep.members))
    keys = list(dict.fromkeys(key for member in sweep.members for key in member.settings))
    number: Column[tuple[int, PlannedMember]] = Column("MEMBER", lambda row: row[0], key="member")
    return Table([number, *map(_column, keys)], rows)


def _column(key: str) -> Column[tuple[int, PlannedMember]]:
    return Column(plain(key), lambda row: row[1].settings.get(key), plain, key=key)


def lines(sweep: PlannedSweep, cost: SweepCost, width: int | None = None) -> list[str]:
    """The table of the members, of many only the first and last, and the cost of all."""
    title, *rows = members(sweep).lines(width)
    if len(rows) > MOST_SHOWN:
        left_out = len(rows) - 2 * EACH_SIDE
        rows = [*rows[:EACH_SIDE], f"... {counted(left_out, 'more member')} ...", *rows[-EACH_SIDE:]]
    return [title, *rows, "", *_cost(sweep, cost)]


def _cost(sweep: PlannedSweep, cost: SweepCost) -> list[str]:
    several = counted(len(sweep.members), "member")
    most, left_out = ("at most ", "the queue") if cost.unknown else ("", "the queue, starts and stops")
    what = f"{several}, {most}{cost.node_hours:.3g} node-hours, {most}{duration(cost.wall_s)} without {left_out}"
    how = f"{cost.at_once} at once" if cost.at_once < len(sweep.members) else "all at once"
    return [f"{'sweep':12}{what}, {how}", *(f"{'':12}{line}" for line in _parts(sweep, cost))]


def _parts(sweep: PlannedSweep, cost: SweepCost) -> Iterator[str]:
    """What the cost has in it, what it lacks, and how members that keep going are submitted."""
    if cost.unknown:
        yield f"by their time limits: {plain(cost.unknown)}"
    elif cost.at_once > 1 and schedulers.get(sweep.site.scheduler).traits.one_machine:
        yield "members that run at the same time share this machine, which makes each slower; that is not predicted"
    if sweep.at_once and any(member.plan.keeps_going for member in sweep.members):
        yield f"members keep going: each waits for the end of the one {sweep.at_once} places before it"


def as_json(sweep: PlannedSweep, cost: SweepCost) -> dict[str, Any]:
    return {
        "schema": 1,
        "sweep": sweep.folder.sweep_id,
        "folder": str(sweep.folder.folder),
        "at_once": sweep.at_once or None,
        "members": [
            {"run": member.run.run_id, "settings": member.settings, "plan": member.plan.as_json()}
            for member in sweep.members
        ],
        "node_hours": cost.node_hours,
        "wall_s": cost.wall_s,
        "by_time_limits": cost.unknown or None,
    }
