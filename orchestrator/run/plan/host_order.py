"""The hosts of a job in the order of the network, and the grid on them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.training.counted import counted, first_of

if TYPE_CHECKING:
    from torusrun.orchestrator.place.hosts.model import Cluster


@dataclass(frozen=True)
class OrderedHosts:
    """Hosts in the order in which ranks fill them, and their plan with its grid.

    `unordered` says why they keep the scheduler's order although the site has a topology; '' if they are ordered.
    """

    plan: Plan
    hosts: tuple[str, ...]
    unordered: str = ""


def ordered(plan: Plan, hosts: Sequence[str]) -> OrderedHosts:
    """Order the allocated hosts, and choose the grid if the run leaves it to the job.

    Queries the topology's source once. If that fails, the hosts keep their order: the allocation must not be lost.
    Raises SiteError for too few hosts.
    """
    names = tuple(dict.fromkeys(hosts))
    if len(names) < plan.run.nodes:
        raise SiteError(
            f"the scheduler allocated {counted(len(names), 'host')} ({first_of(names)}); the run takes {plan.run.nodes}"
        )
    if plan.site.topology is None and plan.has_grid:
        return OrderedHosts(plan, names)
    try:
        return _by_the_network(plan, names)
    except SiteError as error:
        from torusrun.orchestrator.run.plan.auto_grid import with_grid

        return OrderedHosts(with_grid(plan, names, None, str(error)), names, str(error))


def _by_the_network(plan: Plan, names: tuple[str, ...]) -> OrderedHosts:
    from torusrun.orchestrator.place.placement.arrange import arrange
    from torusrun.orchestrator.run.plan.auto_grid import with_grid
    from torusrun.orchestrator.run.plan.rates import charge_of
    from torusrun.orchestrator.schedulers.topology import cluster

    known: Cluster | None = cluster(plan.site, names)
    plan = with_grid(plan, names, known)
    if known is None:
        return OrderedHosts(plan, names)
    arranged = arrange(plan.grid.dims, names, plan.ranks_per_node, known, charge=charge_of(plan))
    allocated = {name.partition(".")[0]: name for name in names}  # the topology may name hosts without their domain
    hosts = (name if name in names else allocated.get(name.partition(".")[0], name) for name in arranged.hosts)
    return OrderedHosts(plan, tuple(hosts))
