"""The load of every link, level by level, with hosts placed on the positions of a grid."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from torusrun.orchestrator.place.hosts.model import Cluster, Link
from torusrun.orchestrator.place.placement.fabric import Fabric, fabric
from torusrun.orchestrator.place.placement.rings import Flows


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
