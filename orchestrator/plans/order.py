"""The hosts of a plan in the order of the network."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from orchestrator.plans.plan import Plan

if TYPE_CHECKING:
    from orchestrator.placement.arrange import Arrangement


def arranged(plan: Plan, hosts: Sequence[str]) -> Arrangement | None:
    """The hosts in the order of the network, or None where nothing is known of it or they are not as many as planned.

    Raises SiteError when the topology cannot be had, or does not know one of the hosts.
    """
    if plan.site.topology is None or len(set(hosts)) < plan.run.nodes:
        return None
    from orchestrator.cluster.profile import cluster  # costs most of what starting `status` may cost
    from orchestrator.placement.arrange import arrange

    known = cluster(plan.site, hosts)
    return arrange(plan.grid.dims, hosts, plan.ranks_per_node, known) if known else None
