"""The plan of an attempt without the bad hosts that its user's memory has of the site now."""

from __future__ import annotations

from dataclasses import replace

from orchestrator import schedulers
from orchestrator.runs.bad_nodes import memory
from orchestrator.runs.bad_nodes.left_out import choose
from orchestrator.runs.plan.attempt_plan import AttemptPlan
from orchestrator.schedulers import client


def without_bad_nodes(planned: AttemptPlan) -> AttemptPlan:
    """The plan with what its request leaves out. Only if there are bad hosts is the scheduler asked which it has."""
    plan = planned.plan
    bad = memory.bad(plan.run.site)
    if not bad:
        return planned
    cannot = schedulers.get(plan.site.scheduler).traits.cannot_exclude
    cluster = () if cannot else client.of(plan.site).hosts(plan.run.queue or plan.site.queue)
    nodes = plan.run.nodes + plan.run.keep_going.spares
    chosen = choose(bad, nodes, excluded=planned.exclude, cluster=cluster, cannot=cannot)
    return replace(planned, left_out=chosen)
