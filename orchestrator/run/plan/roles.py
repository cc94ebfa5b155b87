"""The roles of a run on its nodes: their hosts, ranks and shares of the GPUs, and the order in which they start.

The ranks of all roles are one launch: first those of the main role, in the order of its grid, then those of services.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from graphlib import TopologicalSorter
from itertools import accumulate

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.keys.main_role import awaited, main_name, services
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.place.placement.binding import beside, node_type, of_gpus, share
from torusrun.orchestrator.place.placement.mapping import Placement, Slot


def home(run: RunSpec, site: Site, name: str) -> str:
    """The role whose nodes `name` runs on: itself, if it has nodes of its own."""
    role = run.roles.get(name)
    if role is None or role.main:
        return name
    return main_name(run) if schedulers.get(site.scheduler).traits.one_machine else role.on or name


def together(run: RunSpec, site: Site, name: str) -> list[str]:
    """The roles on the nodes of role `name`, in the order of their ranks on each: the main role's are the first."""
    where = home(run, site, name)
    return [other for other in (main_name(run), *services(run)) if home(run, site, other) == where]


def ranks_per_node(run: RunSpec, site: Site, name: str) -> int:
    """The ranks of a role on each of its nodes; '' is the main role."""
    role = services(run).get(name)
    return (role.ranks_per_node or 1) if role else run.ranks_per_node or site.node.ranks


def ranks_of_services(run: RunSpec, site: Site) -> int:
    """The number of ranks of all services."""
    return sum(nodes(run, site, name) * ranks_per_node(run, site, name) for name in services(run))


def most_on_a_node(run: RunSpec, site: Site) -> int:
    """The largest number of ranks of all roles on one node."""
    homes = (together(run, site, name) for name in (main_name(run), *services(run)))
    return max(sum(ranks_per_node(run, site, name) for name in names) for names in homes)


def with_services(run: RunSpec, site: Site, placement: Placement, hosts: Sequence[str]) -> Placement:
    """The placement of the main role with the ranks of the services added, on other `hosts` of the job or beside it.

    Raises SiteError if the job has too few hosts.
    """
    if not run.roles:
        return placement
    main = main_name(run)
    own = {main: placement.hosts}
    free = [host for host in dict.fromkeys(hosts) if host not in placement.hosts]
    for name, role in services(run).items():
        if home(run, site, name) == name:
            own[name], free = free[: role.nodes], free[role.nodes :]
            if len(own[name]) < role.nodes:
                raise SiteError(f"the job has too few hosts: none is left for the role {name!r}")
    slots = [replace(slot, role=main) for slot in placement.slots]
    here = Counter(slot.host for slot in slots)
    for name in services(run):
        for host in own[home(run, site, name)]:
            for _ in range(ranks_per_node(run, site, name)):
                slots.append(Slot(len(slots), host, here[host], (), name))
                here[host] += 1
    return replace(placement, slots=tuple(slots))


def gpus(run: RunSpec, site: Site, name: str) -> tuple[int, ...] | None:
    """The numbers of a role's GPUs among those that a node of it has; None if it has all of them.

    First come those of the role whose nodes they are, then those of the roles beside it, in the order of the file.
    """
    where = home(run, site, name)
    counts = {other: run.roles[other].gpus or 0 for other in together(run, site, name) if other != where}
    own = run.roles[where].gpus if where in run.roles else None
    if not site.gpus or (own is None and not counts):
        return None
    counts = {where: site.gpus - sum(counts.values()) if own is None else own, **counts}
    ends = dict(zip(counts, accumulate(counts.values()), strict=True))
    return tuple(range(ends[name] - counts[name], ends[name]))


def beside_ranks(run: RunSpec, site: Site, name: str) -> tuple[tuple[tuple[int, ...], ...], ...]:
    """For each rank of a role on a node of it, the cores beside each of its GPUs, as far as a plan knows them."""
    near, own = of_gpus(node_type(site.node)), gpus(run, site, name)
    if site.gpus != site.node.gpus:  # the scheduler chooses them, or other nodes
        near, own = (), None
    return beside(near if own is None else [near[gpu] for gpu in own], ranks_per_node(run, site, name))


def cores(run: RunSpec, site: Site, name: str) -> tuple[int, ...]:
    """The cores of a node to which the ranks of a role are bound, if the job has them all; () if they are not bound."""
    ranks = [(other, near) for other in together(run, site, name) for near in beside_ranks(run, site, other)]
    shares = [share([near for _, near in ranks], at) for at, (other, _) in enumerate(ranks) if other == name]
    return tuple(sorted({core for own in shares for core in own}))


def order(run: RunSpec) -> list[str]:
    """The roles in an order in which each follows those that it waits for. Raises CycleError with a circle."""
    waits = awaited(run)
    known = {name: [other for other in after if other in waits] for name, after in waits.items()}
    return list(TopologicalSorter(known).static_order())


def nodes(run: RunSpec, site: Site, name: str) -> int:
    """The number of nodes on which a role runs."""
    where = home(run, site, name)
    return run.nodes if where == main_name(run) else run.roles[where].nodes
