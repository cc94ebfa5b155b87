"""The grid of a plan with `grid: auto`: the shape with the fastest all-reduce on the hosts of the job."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from orchestrator.network.hosts.model import Cluster
from orchestrator.network.placement.choose import choices
from orchestrator.network.placement.grid import Grid
from orchestrator.runs.plan.gradient import backend_of, gradient_of, summed
from orchestrator.runs.plan.plan import ChosenGrid, Plan
from orchestrator.schedulers.expected_hosts import expected, on_one_switch


def with_expected_grid(plan: Plan, workload: str | None = None) -> Plan:
    """The plan with the grid for the hosts that the site will probably allocate; the job chooses again for its hosts.

    The grid is the best for the gradients of `workload`, by default for the run's.
    """
    if plan.has_grid:
        return plan
    hosts = expected(plan.site, plan.run.nodes)
    where = f"{hosts.assumed}; the job chooses again for its hosts"
    return _chosen(plan, hosts.names, hosts.cluster, where, workload)


def with_grid(
    plan: Plan, hosts: Sequence[str], cluster: Cluster | None, unknown: str = "", workload: str | None = None
) -> Plan:
    """The plan with the grid for these hosts. It may use a part of them.

    Without a `cluster`, all hosts are assumed to be below one switch; `unknown` is the reason, by default that the site
    has no topology. The same hosts give the same grid. Raises SiteError if the cluster does not have one of the hosts.
    """
    if plan.has_grid:
        return plan
    if cluster:
        return _chosen(plan, hosts, cluster, f"on these {plan.run.nodes} hosts", workload)
    one = on_one_switch(plan.site, tuple(hosts), unknown or "the site has no topology")
    return _chosen(plan, one.names, one.cluster, one.assumed, workload)


def _chosen(plan: Plan, hosts: Sequence[str], cluster: Cluster, where: str, workload: str | None) -> Plan:
    size_bytes, _ = gradient_of(plan.run, workload)
    choice, *_ = choices(
        hosts,
        plan.ranks_per_node,
        cluster,
        gradient_bytes=size_bytes,
        backend=backend_of(plan),
        nodes=plan.run.nodes,
        sync=plan.run.train.sync,
    )
    reason = f"auto: {choice.reason}; for {summed(plan.run, workload)} {where}"
    return replace(plan, chosen=ChosenGrid(Grid(choice.dims), reason))
