"""The links that hosts share, numbered for the search: the leaf of every host, the uplinks from each leaf to the top.

Hosts on one leaf with equally fast links have one *kind*: they can swap places without a change of any load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from orchestrator.network.hosts.model import Cluster, Host


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
    def crossed(self) -> tuple[tuple[tuple[int, ...], ...], ...]:
        """The uplinks on the way between two kinds."""
        sets = [set(path) for path in self.paths]
        return tuple(tuple(tuple(sorted(a ^ b)) for b in sets) for a in sets)

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
    ways = {leaf: cluster.path(leaf) for leaf in {host.leaf for host in hosts}}
    below = Counter(switch.name for host in hosts for switch in ways[host.leaf])
    used = [s for s in cluster.switches if s.uplink and 0 < below[s.name] < len(hosts)]
    number = {switch.name: i for i, switch in enumerate(used)}

    def rank(host: Host) -> tuple[tuple[int, ...], str, float]:
        return (tuple(place[s.name] for s in reversed(ways[host.leaf])), host.leaf, -host.network.bandwidth_bytes_per_s)

    ranked = [rank(host) for host in hosts]
    kinds = {key: i for i, key in enumerate(sorted(set(ranked)))}
    return Fabric(
        tuple(hosts),
        tuple(kinds[key] for key in ranked),
        tuple(tuple(number[s.name] for s in ways[leaf] if s.name in number) for _, leaf, _ in sorted(kinds)),
        tuple(switch.name for switch in used),
        tuple(switch.uplink.bandwidth_bytes_per_s for switch in used if switch.uplink),
        tuple(-slow for _, _, slow in sorted(kinds)),
    )
