"""Chooses the spare hosts if there are more hosts than the grid needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.model import Cluster, Host
from torusrun.orchestrator.place.placement.construct import candidates
from torusrun.orchestrator.place.placement.fabric import fabric
from torusrun.orchestrator.place.placement.problem import Cost, PlacementProblem
from torusrun.orchestrator.place.placement.rings import Rings
from torusrun.training.counted import counted


def without_spares(rings: Rings, cluster: Cluster, hosts: Sequence[Host]) -> list[Host]:
    """As many hosts as there are positions, in the given order.

    Removed are hosts with too few working GPUs, then hosts with a slow link. Among several choices, the one with the
    cheapest placement by construction is taken. Raises SiteError if too few hosts are usable.
    """
    whole = [host for host in hosts if host.gpus >= rings.ranks_per_node]
    spare = len(whole) - rings.positions
    if spare < 0:
        broken = [host.name for host in hosts if host.gpus < rings.ranks_per_node]
        lame = f"; fewer than {counted(rings.ranks_per_node, 'GPU')} work on {', '.join(broken)}" if broken else ""
        raise SiteError(f"the grid needs {counted(rings.positions, 'host')}, {len(whole)} are usable{lame}")
    if spare == 0:
        return whole
    best, least = whole, (float("inf"), 0.0)
    for chosen in _choices(rings, whole, spare):
        problem = PlacementProblem(rings, fabric(cluster, chosen))
        if _in_s(problem, problem.bound) >= least:
            continue  # no placement of these hosts is cheaper
        found = _in_s(problem, min(map(problem.cost, candidates(problem))))
        if found < least:
            best, least = chosen, found
    return best


def _in_s(problem: PlacementProblem, cost: Cost) -> tuple[float, float]:
    """A cost whose first number is in seconds, as those of other hosts."""
    return cost[0] * problem.unit_s, cost[1]


def _choices(rings: Rings, hosts: Sequence[Host], spare: int) -> Iterator[list[Host]]:
    """Leave out slow hosts, then whole leaves, smallest first; or keep rows whole; or take one leaf's hosts."""
    on = Counter(host.leaf for host in hosts)
    row = rings.torus[0] if rings.torus else 1

    def without(rank: Callable[..., tuple[int, ...]]) -> list[Host]:
        out = sorted(hosts, key=lambda host: (host.network.bandwidth_bytes_per_s, rank(host)))[:spare]
        names = {host.name for host in out}
        return [host for host in hosts if host.name not in names]

    yield without(lambda host: (on[host.leaf],))
    yield without(lambda host: (on[host.leaf] % row or row,))
    for leaf in on if len(on) <= 40 else ():
        yield without(lambda host, leaf=leaf: (host.leaf != leaf, on[host.leaf]))
