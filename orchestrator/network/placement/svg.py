"""An arrangement drawn as SVG: a square for every node in the colour of its rack, a bar for every uplink's load."""

from __future__ import annotations

from collections.abc import Iterator
from xml.sax.saxutils import escape, quoteattr

from orchestrator.network.hosts.model import Cluster
from orchestrator.network.placement.arrange import Arrangement
from orchestrator.network.placement.drawing import Drawing, Rack, drawing

CELL, GAP, LEFT, TOP, BAR, LINE = 14, 2, 44, 52, 180, 18
HOT = "#c0392b"


def svg(arrangement: Arrangement, cluster: Cluster, title: str) -> str:
    """A whole SVG document. Hovering over a square names the node."""
    drawn = drawing(arrangement, cluster)
    width = max(len(row) for row in drawn.rows) * (CELL + GAP)
    legend = LEFT + width + 30
    height = TOP + max(len(drawn.rows) * (CELL + GAP), len(drawn.racks) * LINE) + 20
    dims = "x".join(map(str, arrangement.rings.dims))
    head = f"{title}: {dims}, hottest link {arrangement.loads.largest_s_per_byte * 1e11:.2f} ms per 100 MB"
    body = [_text(LEFT, 20, head, 14), _text(LEFT, 40, "rows of nodes, in the colours of their racks", 11)]
    body += [*_squares(drawn), *_legend(drawn, arrangement, legend)]
    size = f'width="{legend + 210 + BAR}" height="{height}"'
    style = 'font-family="sans-serif"'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>', *body, "</svg>"]) + "\n"


def _squares(drawn: Drawing) -> Iterator[str]:
    for y, row in enumerate(drawn.rows):
        top = TOP + y * (CELL + GAP)
        yield _text(LEFT - 8, top + CELL - 3, str(y), 9, "end")
        for x, host in enumerate(row):
            rack = drawn.rack_of[host]
            at = f'x="{LEFT + x * (CELL + GAP)}" y="{top}" width="{CELL}" height="{CELL}"'
            name = escape(f"{host} in {rack.name}")
            yield f'<rect {at} rx="2" fill="{_colour(drawn, rack)}"><title>{name}</title></rect>'


def _legend(drawn: Drawing, arrangement: Arrangement, left: int) -> Iterator[str]:
    most_s = max([arrangement.loads.largest_s_per_byte, *(r.uplink.s_per_byte for r in drawn.racks if r.uplink)])
    for i, rack in enumerate(drawn.racks):
        top = TOP + i * LINE
        yield f'<rect x="{left}" y="{top}" width="12" height="12" rx="2" fill="{_colour(drawn, rack)}"/>'
        yield _text(left + 18, top + 10, f"{rack.name} ({rack.hosts})", 11)
        if rack.uplink:
            share = rack.uplink.s_per_byte / most_s if most_s else 0.0
            fill = HOT if rack.hottest else "#7f8c8d"
            yield f'<rect x="{left + 130}" y="{top}" width="{BAR * share:.1f}" height="12" fill="{fill}"/>'
            words = f"{rack.uplink.bytes_per_byte:.2f}" + (" hottest" if rack.hottest else "")
            yield _text(left + 136 + round(BAR * share), top + 10, words, 10)


def _colour(drawn: Drawing, rack: Rack) -> str:
    """Hues a golden angle apart, so that racks side by side differ."""
    index = drawn.racks.index(rack)
    return f"hsl({index * 137 % 360},{65 if index % 2 else 50}%,{55 if index % 3 else 68}%)"


def _text(x: int, y: int, words: str, size: int, anchor: str = "start") -> str:
    return f'<text x="{x}" y="{y}" font-size="{size}" text-anchor={quoteattr(anchor)}>{escape(words)}</text>'
