"""The best grids of a plan on given hosts: `grid: auto` takes the first, which is the fastest all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from torusrun.orchestrator.place.cost.algorithms import cost_of, unchunked_s
from torusrun.orchestrator.place.hosts.model import Cluster
from torusrun.orchestrator.place.placement.arrange import Arrangement, Charge, arrange
from torusrun.orchestrator.place.placement.choose import Choice, choices
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.place.placement.timing import HostsLayout
from torusrun.orchestrator.run.plan.plan import ChosenGrid, Plan
from torusrun.orchestrator.run.plan.rates import charge_of, summed
from torusrun.orchestrator.schedulers.topology import ExpectedHosts, expected, on_one_switch

KEPT = 8  # searches of this process


def best_grids(plan: Plan, hosts: ExpectedHosts, charge: Charge | None = None) -> tuple[Choice, ...]:
    """The best grids on these hosts, whichever grid the run names; the run may use a part of the hosts.

    On one node a grid has one level (`place.placement.grid`). The grids are for the all-reduce of `charge`, by default
    for the run's own. Every verb calls this function, and the same search is done once. Raises SiteError if the cluster
    lacks one of the hosts.
    """
    return _searched(hosts.names, hosts.cluster, plan.run.nodes, plan.ranks_per_node, charge or charge_of(plan))


def placed(plan: Plan, hosts: ExpectedHosts, grids: Sequence[Choice], charge: Charge | None = None) -> Arrangement:
    """The order of the hosts for the plan's grid, which may be one of `grids`, the `best_grids` on these hosts."""
    dims = plan.grid.dims
    known = next((choice.arrangement for choice in grids if choice.dims == dims), None)
    return known or arrange(dims, hosts.names, plan.ranks_per_node, hosts.cluster, charge=charge or charge_of(plan))


def with_expected_grid(plan: Plan) -> Plan:
    """The plan with the grid for the hosts that the site will probably allocate; the job chooses again for its hosts.

    Queries the topology's source once.
    """
    if plan.has_grid:
        return plan
    hosts = expected(plan.site, plan.run.nodes)
    return chosen(plan, best_grids(plan, hosts), f"{hosts.assumed}; the job chooses again for its hosts")


def with_grid(plan: Plan, hosts: Sequence[str], cluster: Cluster | None, unknown: str = "") -> Plan:
    """The plan with the grid for these hosts, of which the run may use a part.

    Without a `cluster`, all hosts are assumed to be below one switch; `unknown` is the reason, by default that the site
    has no topology. The same hosts give the same grid. Raises SiteError if the cluster lacks one of the hosts.
    """
    if plan.has_grid:
        return plan
    where = ExpectedHosts(tuple(hosts), cluster, f"on these {plan.run.nodes} hosts") if cluster else None
    where = where or on_one_switch(plan.site, tuple(hosts), unknown or "the site has no topology")
    return chosen(plan, best_grids(plan, where), where.assumed)


def chosen(plan: Plan, grids: Sequence[Choice], where: str) -> Plan:
    """The plan with the first of these grids."""
    reason = f"auto: {grids[0].reason}; for {summed(plan)} {where}"
    return replace(plan, chosen=ChosenGrid(Grid(grids[0].dims), reason))


@lru_cache(maxsize=KEPT)
def _searched(
    hosts: tuple[str, ...], cluster: Cluster, nodes: int, ranks_per_node: int, charge: Charge
) -> tuple[Choice, ...]:
    if nodes > 1:
        return tuple(choices(hosts, ranks_per_node, cluster, charge.size_bytes, charge.backend, nodes, charge.sync))
    arranged = arrange((ranks_per_node,), hosts, ranks_per_node, cluster, charge=charge)
    cost_s = cost_of(
        charge.sync, HostsLayout(cluster, arranged.hosts, ranks_per_node, charge.backend), arranged.rings.dims
    )
    return (Choice(arranged, cost_s(charge.size_bytes), unchunked_s(cost_s, charge.size_bytes)),)
