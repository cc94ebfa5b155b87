"""A sweep before it is submitted: its members as a table, and what all of them cost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.shown.numbers import duration
from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.base.terminal.plain import plain
from torusrun.orchestrator.keys.study import Searched, Study
from torusrun.orchestrator.sweeps.cost import SweepCost
from torusrun.orchestrator.sweeps.plans import PlannedMember, PlannedSweep
from torusrun.training.counted import counted

MOST_SHOWN = 12  # members; of more, the first and the last ones
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
    """The table of the members, the first and last ones if there are many, and the cost of all.

    Of a study it is the table of its keys.
    """
    if sweep.study:
        return [*_searched(sweep.study).lines(width), "", *_cost(sweep, cost), f"{'study':12}{_goal(sweep.study)}"]
    title, *rows = members(sweep).lines(width)
    if len(rows) > MOST_SHOWN:
        left_out = len(rows) - 2 * EACH_SIDE
        rows = [*rows[:EACH_SIDE], f"... {counted(left_out, 'more member')} ...", *rows[-EACH_SIDE:]]
    return [title, *rows, "", *_cost(sweep, cost)]


def _searched(study: Study) -> Table[Searched]:
    """The keys of a study with what it chooses from."""
    key: Column[Searched] = Column("KEY", lambda one: one.key, plain)
    return Table([key, Column("CHOSEN FROM", str, plain, right=False)], study.searched)


def _goal(study: Study) -> str:
    return f"the {'largest' if study.larger else 'least'} {plain(study.metric)}, by Optuna in the jobs"


def _cost(sweep: PlannedSweep, cost: SweepCost) -> list[str]:
    several = counted(len(sweep.members), "member")
    most = "at most " if cost.unknown else ""
    what = f"{several}, {most}{cost.node_hours:.3g} node-hours, {most}{duration(cost.wall_s)} without the queue"
    how = f"{cost.at_once} at once" if cost.at_once < len(sweep.members) else "all at once"
    return [f"{'sweep':12}{what}, {how}", *(f"{'':12}{line}" for line in _parts(sweep, cost)), *_lanes(sweep)]


def _parts(sweep: PlannedSweep, cost: SweepCost) -> Iterator[str]:
    """What the cost has in it, and what it lacks."""
    if cost.unknown:
        yield f"by their time limits: {plain(cost.unknown)}"
        return
    if cost.starts:
        of = counted(cost.starts.runs, "run")
        yield f"start and stop of each member: {duration(cost.starts.each_s)}, the median of {of} of yours on this site"
    else:
        yield "without starts and stops: no run of yours on this site has shown them yet"
    if cost.at_once > 1 and schedulers.get(sweep.site.scheduler).traits.one_machine:
        yield "members that run at the same time share this machine, which makes each slower; that is not predicted"


def _lanes(sweep: PlannedSweep) -> list[str]:
    """How members that keep going are submitted."""
    if not sweep.at_once or not any(member.plan.keeps_going for member in sweep.members):
        return []
    return [f"{'':12}members keep going: each waits for the end of the one {sweep.at_once} places before it"]


def as_json(sweep: PlannedSweep, cost: SweepCost) -> dict[str, Any]:
    return {
        "schema": 1,
        "sweep": sweep.folder.sweep_id,
        "folder": str(sweep.folder.folder),
        "at_once": sweep.at_once or None,
        "study": asdict(sweep.study) if sweep.study else None,
        "members": [
            {"run": member.run.run_id, "settings": member.settings, "plan": member.plan.as_json()}
            for member in sweep.members
        ],
        "node_hours": cost.node_hours,
        "wall_s": cost.wall_s,
        "by_time_limits": cost.unknown or None,
        "start_s": cost.starts.each_s if cost.starts else None,
    }
