"""A map as a value: hosts in rows, their racks, and the load of the links; as text, as SVG, or as JSON."""

from __future__ import annotations

import string
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from orchestrator.network.hosts.model import Cluster
from orchestrator.network.placement.arrange import Arrangement
from orchestrator.network.placement.grid import Grid
from orchestrator.network.placement.load import LinkLoad, Loads
from orchestrator.report import svg
from training.counted import counted

MARKS = string.ascii_uppercase + string.ascii_lowercase + string.digits
BAR, WIDEST = 24, 72  # of the text
CELL, LEFT, TOP, LINE, SVG_BAR = 16, 44, 52, 18, 180  # of the picture
HOT = "#c0392b"


@dataclass(frozen=True)
class Rack:
    """A leaf switch and its hosts; `uplink` is None if it carries nothing."""

    name: str
    mark: str
    colour: str
    hosts: int
    uplink: LinkLoad | None


@dataclass(frozen=True)
class Map:
    """An arrangement: its hosts in rows, and the rack of each, in the order in which racks first appear."""

    arrangement: Arrangement
    rows: tuple[tuple[str, ...], ...]
    rack_of: Mapping[str, Rack]

    @property
    def racks(self) -> list[Rack]:
        return [*dict.fromkeys(self.rack_of.values())]

    @property
    def loads(self) -> Loads:
        return self.arrangement.loads

    def text(self) -> str:
        """The rows of nodes, equal rows once, above the racks; '<' marks the hottest link."""
        return "\n".join([self._head(), *self._rows(), "", *map(self._rack, self.racks), *self._hottest_host()])

    def as_svg(self, title: str) -> str:
        """A square for every node in the colour of its rack, a bar for every uplink. Hovering shows the node's name."""
        width = max(map(len, self.rows)) * CELL
        height = TOP + max(len(self.rows) * CELL, len(self.racks) * LINE) + 20
        hottest = f"hottest link {self.loads.largest_s_per_byte * 1e11:.2f} ms per 100 MB"
        head = f"{title}: {Grid(self.arrangement.rings.dims)}, {hottest}"
        drawn = [svg.text(LEFT, 20, head, 14), svg.text(LEFT, 40, "rows of nodes, in the colours of their racks", 11)]
        drawn += [*self._squares(), *self._bars(LEFT + width + 30)]
        return svg.document(LEFT + width + 240 + SVG_BAR, height, drawn)

    def as_json(self) -> dict[str, Any]:
        """The hosts in order, and all links with their loads."""
        return {
            "hosts": list(self.arrangement.hosts),
            "links": [
                {
                    "name": load.name,
                    "kind": load.kind,
                    "hosts": load.hosts,
                    "bandwidth_bytes_per_s": load.link.bandwidth_bytes_per_s,
                    "bytes_per_byte": list(load.levels),
                }
                for load in self.loads.links
            ],
        }

    def _head(self) -> str:
        rings = self.arrangement.rings
        row = "a row to a line" if len(rings.dims) < 3 else "a group to a line"
        if not rings.torus or rings.torus[0] == 1:
            row = "nodes in the order of ranks"
        return f"{Grid(rings.dims).words}, {counted(rings.ranks_per_node, 'rank')} to a node; {row}"

    def _rows(self) -> Iterator[str]:
        number = 0
        for marks, group in groupby("".join(self.rack_of[host].mark for host in row) for row in self.rows):
            count = len(list(group))
            shown = marks if len(marks) <= WIDEST else marks[: WIDEST - 3] + "..."
            times = f"   x {count}" if count > 1 else ""
            yield f"{number:5}  {' '.join(shown) if len(shown) <= WIDEST // 2 else shown}{times}"
            number += count

    def _rack(self, rack: Rack) -> str:
        name = f"{rack.mark}  {rack.name:16}{counted(rack.hosts, 'node'):>10}"
        if rack.uplink is None:
            return f"{name}  nothing leaves it"
        bar = "#" * max(1, round(BAR * self._share(rack.uplink)))
        hot = "  < hottest" if rack.uplink is self.loads.hottest else ""
        return f"{name}  {bar:{BAR}} {rack.uplink.bytes_per_byte:6.2f} bytes per byte over its uplink{hot}"

    def _hottest_host(self) -> Iterator[str]:
        hottest = self.loads.hottest
        if hottest and hottest.kind == "host":
            yield f"hottest: the nodes' own links, {hottest.bytes_per_byte:.2f} bytes per byte ({hottest.name})"

    def _squares(self) -> Iterator[str]:
        for y, row in enumerate(self.rows):
            top = TOP + y * CELL
            yield svg.text(LEFT - 8, top + CELL - 5, str(y), 9, text_anchor="end")
            for x, host in enumerate(row):
                rack, left = self.rack_of[host], LEFT + x * CELL
                yield svg.box(left, top, CELL - 2, CELL - 2, fill=rack.colour, title=f"{host} in {rack.name}")

    def _bars(self, left: int) -> Iterator[str]:
        for top, rack in zip(range(TOP, TOP + len(self.racks) * LINE, LINE), self.racks, strict=True):
            yield svg.box(left, top, 12, 12, fill=rack.colour)
            yield svg.text(left + 18, top + 10, f"{rack.name} ({rack.hosts})", 11)
            if rack.uplink:
                hot, width = rack.uplink is self.loads.hottest, SVG_BAR * self._share(rack.uplink)
                yield svg.box(left + 130, top, round(width, 1), 12, fill=HOT if hot else "#7f8c8d")
                words = f"{rack.uplink.bytes_per_byte:.2f}{' hottest' if hot else ''}"
                yield svg.text(left + 136 + round(width), top + 10, words, 10)

    def _share(self, load: LinkLoad) -> float:
        """The time of a link as a share of the hottest link's time."""
        largest_s = self.loads.largest_s_per_byte
        return load.s_per_byte / largest_s if largest_s else 0.0


def map_of(arrangement: Arrangement, cluster: Cluster) -> Map:
    """The map of an arrangement. A row is a row of nodes of the torus, or eight nodes if rows end inside nodes."""
    hosts, torus = cluster.only(arrangement.hosts), arrangement.rings.torus
    uplinks = {load.name: load for load in arrangement.loads.links if load.kind == "uplink"}
    racks = {
        leaf: Rack(leaf, MARKS[i % len(MARKS)], _colour(i), count, uplinks.get(leaf))
        for i, (leaf, count) in enumerate(Counter(host.leaf for host in hosts).items())
    }
    length = torus[0] if torus and torus[0] > 1 else 8
    rows = tuple(arrangement.hosts[i : i + length] for i in range(0, len(hosts), length))
    return Map(arrangement, rows, {host.name: racks[host.leaf] for host in hosts})


def _colour(number: int) -> str:
    """The hue of a rack; hues are a golden angle apart, so that neighbouring racks differ."""
    return f"hsl({number * 137 % 360},{65 if number % 2 else 50}%,{55 if number % 3 else 68}%)"
