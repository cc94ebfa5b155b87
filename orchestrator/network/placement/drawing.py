"""An arrangement as it is drawn: the racks with a mark each, and a line of marks for every row of nodes."""

from __future__ import annotations

import string
from collections.abc import Mapping
from dataclasses import dataclass

from orchestrator.network.hosts.model import Cluster
from orchestrator.network.placement.arrange import Arrangement
from orchestrator.network.placement.load import LinkLoad

MARKS = string.ascii_uppercase + string.ascii_lowercase + string.digits


@dataclass(frozen=True)
class Rack:
    """A leaf switch in the drawing; `uplink` is None when nothing crosses it."""

    name: str
    mark: str
    hosts: int
    uplink: LinkLoad | None
    hottest: bool


@dataclass(frozen=True)
class Drawing:
    """Racks in the order in which they first appear, and the nodes of every row by name and by rack."""

    racks: tuple[Rack, ...]
    rows: tuple[tuple[str, ...], ...]
    rack_of: Mapping[str, Rack]


def drawing(arrangement: Arrangement, cluster: Cluster) -> Drawing:
    """Rows are those of the torus of nodes; where nodes straddle the rows of ranks, eight nodes to a line."""
    leaves: dict[str, list[str]] = {}
    for host in cluster.only(arrangement.hosts):
        leaves.setdefault(host.leaf, []).append(host.name)
    uplinks = {load.name: load for load in arrangement.loads.links if load.kind == "uplink"}
    hottest = arrangement.loads.hottest
    racks = tuple(
        Rack(leaf, MARKS[i % len(MARKS)], len(names), uplinks.get(leaf), bool(hottest and hottest.name == leaf))
        for i, (leaf, names) in enumerate(leaves.items())
    )
    rack_of = {name: rack for rack in racks for name in leaves[rack.name]}
    torus = arrangement.rings.torus
    length = torus[0] if torus and torus[0] > 1 else 8
    hosts = arrangement.hosts
    return Drawing(racks, tuple(hosts[i : i + length] for i in range(0, len(hosts), length)), rack_of)
