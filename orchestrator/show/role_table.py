"""The roles of a plan in one table, in the order of their start: where each runs, its program, and when it is ready."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from torusrun.orchestrator.base.shown.table import Column, Table
from torusrun.orchestrator.keys.main_role import awaited, main_name
from torusrun.orchestrator.keys.roles import Ready, Role
from torusrun.orchestrator.place.hosts.hostlist import number_ranges
from torusrun.orchestrator.run.plan import roles
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.state.pace import short


@dataclass(frozen=True)
class RoleRow:
    """A role of a plan. `on` is the role on whose nodes it runs, '' for its own.

    `gpus` and `cores` are their numbers on each node. Ranks without cores of their own may use all of the job's.
    """

    role: str
    nodes: int
    on: str
    ranks_per_node: int
    gpus: tuple[int, ...]
    cores: tuple[int, ...]
    command: tuple[str, ...]
    after: tuple[str, ...]
    ready: str


def _ranges(numbers: Sequence[int]) -> str:
    return ",".join(number_ranges([*map(str, numbers)]))


COLUMNS: tuple[Column[RoleRow], ...] = (
    Column("ROLE", lambda row: row.role, key="role", right=False),
    Column("NODES", lambda row: row.nodes, key="nodes"),
    Column("ON", lambda row: row.on or None, key="on", right=False),
    Column("RANKS EACH", lambda row: row.ranks_per_node, key="ranks_per_node"),
    Column("GPUS", lambda row: row.gpus or None, _ranges, key="gpus", right=False),
    Column("CORES", lambda row: row.cores or None, _ranges, key="cores", right=False),
    Column("AFTER", lambda row: row.after or None, ", ".join, key="after", right=False),
    Column("READY BY", lambda row: row.ready or None, key="ready", right=False),
    Column("COMMAND", lambda row: row.command or None, shlex.join, key="command", right=False),
)


def table(plan: Plan) -> Table[RoleRow]:
    """The roles of a plan."""
    return Table(COLUMNS, [_row(plan, name) for name in roles.order(plan.run)])


def _row(plan: Plan, name: str) -> RoleRow:
    run, site, is_main = plan.run, plan.site, name == main_name(plan.run)
    role, home = run.roles.get(name, Role()), roles.home(run, site, name)
    shares = roles.gpus(run, site, name)
    return RoleRow(
        name,
        roles.nodes(run, site, name),
        "" if home == name else home,
        roles.ranks_per_node(run, site, name),
        tuple(range(site.gpus)) if shares is None else shares,
        roles.cores(run, site, name),
        run.command if is_main else role.command,
        awaited(run)[name],
        "" if is_main else "every checkpoint" if role.each else _ready(role.ready),
    )


def _ready(ready: Ready) -> str:
    kind: Sequence[str] = ready.checks
    if not kind:
        return "its start"
    value = "its port" if ready.tcp else f"{kind[0]} {getattr(ready, kind[0])}"
    return f"{value} within {short(ready.within_s)}"
