"""Chooses the spare hosts if there are more hosts than the grid needs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from orchestrator.base.errors import SiteError
from orchestrator.network.hosts.model import Cluster, Host
from orchestrator.network.placement.construct import candidates
from orchestrator.network.placement.fabric import fabric
from orchestrator.network.placement.problem import PlacementProblem
from orchestrator.network.placement.rings import Rings
from training.counted import counted


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
    return min(_choices(rings, whole, spare), key=lambda chosen: _cost(rings, cluster, chosen))


def _cost(rings: Rings, cluster: Cluster, hosts: Sequence[Host]) -> tuple[float, float]:
    problem = PlacementProblem(rings, fabric(cluster, hosts))
    largest, total = min(map(problem.cost, candidates(problem)))
    return largest * problem.unit_s, total


def _choices(rings: Rings, hosts: Sequence[Host], spare: int) -> Iterator[list[Host]]:
    """Leave out slow hosts, then whole leaves, smallest first; or keep rows whole; or take one leaf's hosts."""
    on = Counter(host.leaf for host in hosts)
    row = rings.torus[0] if rings.torus else 1
    fast = max(host.network.bandwidth_bytes_per_s for host in hosts)

    def slow(host: Host) -> float:
        return host.network.bandwidth_bytes_per_s / fast

    seen = dict.fromkeys(host.leaf for host in hosts)
    yield _rest(hosts, sorted(hosts, key=lambda host: (slow(host), on[host.leaf]))[:spare])
    yield _rest(hosts, sorted(hosts, key=lambda host: (slow(host), on[host.leaf] % row or row))[:spare])
    for leaf in seen if len(seen) <= 40 else ():
        yield _rest(hosts, sorted(hosts, key=lambda host: (slow(host), host.leaf != leaf, on[host.leaf]))[:spare])


def _rest(hosts: Sequence[Host], out: Sequence[Host]) -> list[Host]:
    names = {host.name for host in out}
    return [host for host in hosts if host.name not in names]
