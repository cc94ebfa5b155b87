"""The links that hosts share, numbered for the search, and their loads: leaf of every host, uplinks to the top.

Hosts on one leaf with equally fast links have one *kind*: they can swap places without a change of any load.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torusrun.orchestrator.place.hosts.model import Cluster, Host, Link
from torusrun.orchestrator.place.placement.rings import Flows


class Ways(dict[int, tuple[int, ...]]):
    """The uplinks on the way from one kind to each other kind."""

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


@dataclass(frozen=True)
class LinkLoad:
    """One link: a host's own (`kind` host) or a switch's uplink (`kind` uplink).

    `levels` are bytes per byte of gradient in each direction, for each level of the grid.
    """

    name: str
    kind: str
    link: Link
    hosts: int  # below it
    levels: tuple[float, ...]

    @property
    def bytes_per_byte(self) -> float:
        """The bytes over all levels, in one direction."""
        return sum(self.levels)

    @property
    def s_per_byte(self) -> float:
        """Time per byte of gradient if the link is always busy."""
        return self.bytes_per_byte / self.link.bandwidth_bytes_per_s


@dataclass(frozen=True)
class Loads:
    """All links of a placement, hosts first, in order."""

    links: tuple[LinkLoad, ...]

    @cached_property
    def hottest(self) -> LinkLoad | None:
        """The link with the longest time; of an uplink and a host's link with equal times, the uplink."""
        return max(self.links, key=lambda load: (round(load.s_per_byte, 21), load.kind == "uplink"), default=None)

    @property
    def largest_s_per_byte(self) -> float:
        return self.hottest.s_per_byte if self.hottest else 0.0

    @property
    def hop_bytes(self) -> float:
        """Bytes times links crossed, per byte of gradient: a link's load counts once for each direction."""
        return 2 * sum(load.bytes_per_byte for load in self.links)


def loads(parts: Sequence[Flows], cluster: Cluster, names: Sequence[str]) -> Loads:
    """The loads of every link for the parts of the traffic, as `Rings.levels`, with the host `names[p]` on position p.

    A link's load is that of the busier of its two directions. Raises SiteError for unknown hosts.
    """
    return loads_on(parts, cluster, fabric(cluster, cluster.only(names)))


def loads_on(parts: Sequence[Flows], cluster: Cluster, tree: Fabric) -> Loads:
    """The same on the hosts of a fabric, in their order."""
    hosts, kinds = tree.hosts, tree.kinds
    paths = [set(path) for path in tree.paths]
    own = [[[0.0, 0.0] for _ in parts] for _ in hosts]
    over = [[[0.0, 0.0] for _ in parts] for _ in tree.uplinks]
    for part, flows in enumerate(parts):
        for (a, b), bytes_ in flows.items():
            own[a][part][0] += bytes_
            own[b][part][1] += bytes_
            if kinds[a] == kinds[b]:
                continue
            up, down = paths[kinds[a]], paths[kinds[b]]
            for uplink in up - down:
                over[uplink][part][0] += bytes_
            for uplink in down - up:
                over[uplink][part][1] += bytes_
    return Loads(
        tuple(LinkLoad(h.name, "host", h.network, 1, tuple(map(max, own[i]))) for i, h in enumerate(hosts))
        + tuple(
            LinkLoad(name, "uplink", link, tree.below[i], tuple(map(max, over[i])))
            for i, name in enumerate(tree.uplinks)
            if (link := cluster.switch[name].uplink)
        )
    )
