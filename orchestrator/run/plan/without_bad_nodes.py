"""The plans of attempts without the bad hosts that their user's memory has of the site now."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.run.bad_nodes import memory
from torusrun.orchestrator.run.bad_nodes.left_out import choose
from torusrun.orchestrator.run.plan.attempt_plan import AttemptPlan
from torusrun.orchestrator.schedulers import client


def without_bad_nodes(planned: AttemptPlan) -> AttemptPlan:
    """The plan with the hosts that its request leaves out. The scheduler is queried only if there are bad hosts."""
    return all_without_bad_nodes([planned])[0]


def all_without_bad_nodes(planned: Sequence[AttemptPlan]) -> list[AttemptPlan]:
    """As `without_bad_nodes`, for attempts at one site: it takes one query for each queue."""
    if not planned or not (bad := memory.bad(planned[0].plan.run.site)):
        return list(planned)
    site = planned[0].plan.site
    cannot = schedulers.get(site.scheduler).traits.cannot_exclude
    hosts = cache(client.of(site).hosts)
    found = []
    for one in planned:
        run = one.plan.run
        cluster = () if cannot else hosts(run.queue or site.queue)
        nodes = run.nodes + run.keep_going.spares
        chosen = choose(bad, nodes, excluded=one.exclude, cluster=cluster, cannot=cannot)
        found.append(replace(one, left_out=chosen))
    return found
