"""The links that hosts share, numbered for the search: the leaf of every host, the uplinks from each leaf to the top.

Hosts on one leaf with equally fast links have one *kind*: they can swap places without a change of any load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torusrun.orchestrator.place.hosts.model import Cluster, Host


class Ways(dict[int, tuple[int, ...]]):
    """The uplinks on the way from one kind to each other one."""

    def __init__(self, paths: Sequence[tuple[int, ...]], start: int) -> None:
        super().__init__()
        self._paths, self._start = paths, start

    def __missing__(self, end: int) -> tuple[int, ...]:
        self[end] = way = tuple(sorted({*self._paths[self._start]} ^ {*self._paths[end]}))
        return way


@dataclass(frozen=True)
class Fabric:
    """The switches above some hosts. `paths[kind]` are the uplinks from the kind's leaf to the top.

    `uplink_bytes_per_s` is indexed by uplink, `host_bytes_per_s` by kind.
    """

    hosts: tuple[Host, ...]
    kinds: tuple[int, ...]  # of each host
    paths: tuple[tuple[int, ...], ...]
    uplinks: tuple[str, ...]  # names of the switches below them
    uplink_bytes_per_s: tuple[float, ...]
    host_bytes_per_s: tuple[float, ...]

    @cached_property
    def counts(self) -> tuple[int, ...]:
        """The number of hosts of every kind."""
        counted = Counter(self.kinds)
        return tuple(counted[kind] for kind in range(len(self.paths)))

    @cached_property
    def below(self) -> tuple[int, ...]:
        """The number of hosts below every uplink."""
        counted = Counter(uplink for kind in self.kinds for uplink in self.paths[kind])
        return tuple(counted[uplink] for uplink in range(len(self.uplinks)))

    @cached_property
    def crossed(self) -> tuple[Ways, ...]:
        """The uplinks on the way between two kinds, computed on request: of 1,000 racks few pairs communicate."""
        return tuple(Ways(self.paths, kind) for kind in range(len(self.paths)))

    def order(self, kinds: Sequence[int]) -> list[Host]:
        """The hosts of these kinds, position by position; within a kind they keep their order."""
        waiting: list[list[Host]] = [[] for _ in self.paths]
        for host, kind in zip(reversed(self.hosts), reversed(self.kinds), strict=True):
            waiting[kind].append(host)
        return [waiting[kind].pop() for kind in kinds]


def fabric(cluster: Cluster, hosts: Sequence[Host]) -> Fabric:
    """Number the kinds in the order of the tree (the cluster's order of switches), slow hosts last on a leaf.

    Uplinks above all of the hosts carry nothing and are left out.
    """
    place = {switch.name: i for i, switch in enumerate(cluster.switches)}
    on = Counter(host.leaf for host in hosts)
    ways = {leaf: cluster.path(leaf) for leaf in on}
    below = Counter[str]()
    for leaf, count in on.items():
        below.update({switch.name: count for switch in ways[leaf]})
    used = [s for s in cluster.switches if s.uplink and 0 < below[s.name] < len(hosts)]
    number = {switch.name: i for i, switch in enumerate(used)}

    at = {leaf: tuple(place[switch.name] for switch in reversed(way)) for leaf, way in ways.items()}
    ranked = [(at[host.leaf], host.leaf, -host.network.bandwidth_bytes_per_s) for host in hosts]
    kinds = {key: i for i, key in enumerate(sorted(set(ranked)))}
    return Fabric(
        tuple(hosts),
        tuple(kinds[key] for key in ranked),
        tuple(tuple(number[s.name] for s in ways[leaf] if s.name in number) for _, leaf, _ in sorted(kinds)),
        tuple(switch.name for switch in used),
        tuple(switch.uplink.bandwidth_bytes_per_s for switch in used if switch.uplink),
        tuple(-slow for _, _, slow in sorted(kinds)),
    )
