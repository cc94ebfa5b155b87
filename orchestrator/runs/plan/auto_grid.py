"""The best grids of a plan on given hosts: `grid: auto` takes the first, which is the fastest all-reduce."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache

from orchestrator.network.cost.algorithms import cost_of, unchunked_s
from orchestrator.network.cost.all_reduce import Backend
from orchestrator.network.hosts.model import Cluster
from orchestrator.network.placement.arrange import Arrangement, arrange
from orchestrator.network.placement.choose import Choice, choices
from orchestrator.network.placement.grid import Grid
from orchestrator.network.placement.timing import HostsLayout
from orchestrator.runs.plan.gradient import backend_of, gradient_of, summed
from orchestrator.runs.plan.plan import ChosenGrid, Plan
from orchestrator.schedulers.expected_hosts import ExpectedHosts, expected, on_one_switch
from training.recipe.train import SyncKeys

KEPT = 8  # searches of this process


def best_grids(
    plan: Plan, hosts: ExpectedHosts, size_bytes: float | None = None, backend: Backend | None = None
) -> tuple[Choice, ...]:
    """The best grids on these hosts, whichever grid the run names. It may use a part of the hosts.

    On one node there is one level (`network.placement.grid`). They are for an all-reduce of `size_bytes` by `backend`,
    by default for the run's own. Every verb takes them from here, and the same question is searched once. Raises
    SiteError if the cluster does not have one of the hosts.
    """
    size_bytes = gradient_of(plan.run)[0] if size_bytes is None else size_bytes
    backend, sync = backend or backend_of(plan), plan.run.train.sync
    return _searched(hosts.names, hosts.cluster, plan.run.nodes, plan.ranks_per_node, size_bytes, backend, sync)


def placed(plan: Plan, hosts: ExpectedHosts, grids: Sequence[Choice]) -> Arrangement:
    """The order of the hosts for the plan's grid; `grids` are the `best_grids` there, one of which it may be."""
    dims = plan.grid.dims
    known = next((choice.arrangement for choice in grids if choice.dims == dims), None)
    return known or arrange(dims, hosts.names, plan.ranks_per_node, hosts.cluster)


def with_expected_grid(plan: Plan) -> Plan:
    """The plan with the grid for the hosts that the site will probably allocate; the job chooses again for its hosts.

    Queries the topology's source once.
    """
    if plan.has_grid:
        return plan
    hosts = expected(plan.site, plan.run.nodes)
    return chosen(plan, best_grids(plan, hosts), f"{hosts.assumed}; the job chooses again for its hosts")


def with_grid(plan: Plan, hosts: Sequence[str], cluster: Cluster | None, unknown: str = "") -> Plan:
    """The plan with the grid for these hosts. It may use a part of them.

    Without a `cluster`, all hosts are assumed to be below one switch; `unknown` is the reason, by default that the site
    has no topology. The same hosts give the same grid. Raises SiteError if the cluster does not have one of the hosts.
    """
    if plan.has_grid:
        return plan
    found = ExpectedHosts(tuple(hosts), cluster, f"on these {plan.run.nodes} hosts") if cluster else None
    found = found or on_one_switch(plan.site, tuple(hosts), unknown or "the site has no topology")
    return chosen(plan, best_grids(plan, found), found.assumed)


def chosen(plan: Plan, grids: Sequence[Choice], where: str) -> Plan:
    """The plan with the first of these grids."""
    reason = f"auto: {grids[0].reason}; for {summed(plan.run)} {where}"
    return replace(plan, chosen=ChosenGrid(Grid(grids[0].dims), reason))


@lru_cache(maxsize=KEPT)
def _searched(
    hosts: tuple[str, ...],
    cluster: Cluster,
    nodes: int,
    ranks_per_node: int,
    size_bytes: float,
    backend: Backend,
    sync: SyncKeys,
) -> tuple[Choice, ...]:
    if nodes > 1:
        return tuple(choices(hosts, ranks_per_node, cluster, size_bytes, backend, nodes, sync))
    found = arrange((ranks_per_node,), hosts, ranks_per_node, cluster)
    cost_s = cost_of(sync, HostsLayout(cluster, found.hosts, ranks_per_node, backend), found.rings.dims)
    return (Choice(found, cost_s(size_bytes), unchunked_s(cost_s, size_bytes)),)
