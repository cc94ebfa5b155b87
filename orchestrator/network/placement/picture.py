"""An arrangement drawn in a terminal: every node by the mark of its rack, every uplink with its load."""

from __future__ import annotations

from itertools import groupby

from orchestrator.network.hosts.model import Cluster
from orchestrator.network.placement.arrange import Arrangement
from orchestrator.network.placement.drawing import Drawing, Rack, drawing
from orchestrator.network.placement.grid import Grid
from training.counted import counted

BAR = 24
WIDEST = 72


def picture(arrangement: Arrangement, cluster: Cluster) -> str:
    """The rows of nodes, equal ones drawn once, above the racks; '<' marks the hottest link."""
    drawn = drawing(arrangement, cluster)
    grid, per_node = Grid(arrangement.rings.dims), arrangement.rings.ranks_per_node
    head = f"{grid.words}, {counted(per_node, 'rank')} to a node; {_title(arrangement)}"
    return "\n".join([head, *_rows(drawn), "", *_racks(drawn, arrangement), *_hottest_host(arrangement)])


def _title(arrangement: Arrangement) -> str:
    """What a line of the drawing is."""
    torus = arrangement.rings.torus
    if not torus or torus[0] == 1:
        return "nodes in the order of ranks"
    return "a row to a line" if len(arrangement.rings.dims) < 3 else "a group to a line"


def _rows(drawn: Drawing) -> list[str]:
    lines, number = [], 0
    for marks, group in groupby("".join(drawn.rack_of[host].mark for host in row) for row in drawn.rows):
        count = len(list(group))
        shown = marks if len(marks) <= WIDEST else marks[: WIDEST - 3] + "..."
        lines.append(f"{number:5}  {' '.join(shown) if len(shown) <= WIDEST // 2 else shown}" + _times(count))
        number += count
    return lines


def _times(count: int) -> str:
    return f"   x {count}" if count > 1 else ""


def _racks(drawn: Drawing, arrangement: Arrangement) -> list[str]:
    most_s = max((rack.uplink.s_per_byte for rack in drawn.racks if rack.uplink), default=0.0)
    return [_rack(rack, max(most_s, arrangement.loads.largest_s_per_byte)) for rack in drawn.racks]


def _rack(rack: Rack, most_s: float) -> str:
    name = f"{rack.mark}  {rack.name:16}{counted(rack.hosts, 'node'):>10}"
    if rack.uplink is None:
        return f"{name}  nothing leaves it"
    bar = "#" * max(1, round(BAR * rack.uplink.s_per_byte / most_s))
    hot = "  < hottest" if rack.hottest else ""
    return f"{name}  {bar:{BAR}} {rack.uplink.bytes_per_byte:6.2f} bytes per byte over its uplink{hot}"


def _hottest_host(arrangement: Arrangement) -> list[str]:
    hottest = arrangement.loads.hottest
    if hottest is None or hottest.kind != "host":
        return []
    return [f"hottest: the nodes' own links, {hottest.bytes_per_byte:.2f} bytes per byte ({hottest.name})"]
