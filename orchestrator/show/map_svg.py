"""A map as SVG: racks as blocks of their nodes, links in the colours of their loads, and the rings over them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, hypot, sqrt

from torusrun.orchestrator.base.shown import svg
from torusrun.orchestrator.place.placement.fabric import LinkLoad
from torusrun.orchestrator.place.placement.grid import Grid
from torusrun.orchestrator.show.map import UNIT, Map, Order, link_name, unit_ms

WIDTH, HEIGHT, MOST_HEIGHT = 360, 440, 640  # of one order; the most if nodes would be smaller than SEEN else
CELLS = (56, 40, 26, 20, 16, 13, 10, 8, 6, 4)  # sizes of a node
NAMED, NUMBERED, SEEN = 40, 20, 8  # from these sizes on, a node has its name, its place in the order, or is seen well
LEFT, TOP, LABEL, PAD, GAP, SMALL = 8, 42, 29, 4, 10, 10
LETTER = 0.56  # the mean width of a letter, as a share of its size
# From cold to hot: ColorBrewer's RdYlBu with five classes, also for people who cannot distinguish red from green.
HEAT = (("#4575b4", "#fff"), ("#91bfdb", "#000"), ("#fee090", "#000"), ("#fc8d59", "#000"), ("#d73027", "#fff"))
DASHES = ("none", "4 3", "1 3")  # of the levels whose rings leave nodes
FADED, MOST_HOPS = 200, 4000  # hops of a level: from here on their lines are faint, or left out
INK = "currentColor"

Point = tuple[float, float]


def document(shown: Map, title: str) -> str:
    """One picture: the orders side by side, and the legend below."""
    panels = [_Panel(shown, order) for order in shown.orders]
    height = 30 + max(panel.height for panel in panels)
    legend, legend_height = _legend(shown)
    drawn = [svg.text(8, 20, f"{title}: {Grid(shown.rings.dims)}", 14, font_weight="bold")]
    drawn += [
        svg.element("svg", "".join(panel.drawn()), x=i * (WIDTH + GAP), y=30, width=WIDTH, height=panel.height)
        for i, panel in enumerate(panels)
    ]
    drawn.append(svg.element("svg", "".join(legend), x=0, y=height, width=WIDTH, height=legend_height))
    return svg.document(len(panels) * (WIDTH + GAP) - GAP, height + legend_height, drawn)


def parts(shown: Map) -> list[str]:
    """The orders and the legend as pictures of their own, which a page puts side by side or below each other."""
    panels = [_Panel(shown, order) for order in shown.orders]
    legend, height = _legend(shown)
    every = [("".join(panel.drawn()), panel.height) for panel in panels] + [("".join(legend), height)]
    return [svg.element("svg", inner, viewBox=f"0 0 {WIDTH} {tall}", width=WIDTH, role="img") for inner, tall in every]


@dataclass(frozen=True)
class _Panel:
    """One order of the hosts."""

    map: Map
    order: Order

    @cached_property
    def columns(self) -> int:
        """Nodes side by side in a rack: a row of the torus if it is short, or a square of nodes."""
        largest = max(map(len, self.map.racks.values()))
        return self.map.row if 1 < self.map.row <= min(largest, 12) else ceil(sqrt(largest))

    @cached_property
    def cell(self) -> int:
        """The largest size of a node with which all racks fit."""
        wide = [cell for cell in CELLS if self._block_width(cell) <= WIDTH - 2 * LEFT]
        seen = [cell for cell in wide if cell >= SEEN and self._tall(cell) <= HEIGHT]
        return next(iter(seen or [cell for cell in wide if self._tall(cell) <= MOST_HEIGHT]), CELLS[-1])

    @property
    def height(self) -> int:
        return self._tall(self.cell)

    def drawn(self) -> Iterator[str]:
        """The whole panel; what rings cross is below them."""
        yield svg.text(
            8, 14, f"{self.order.name} order" if " " not in self.order.name else self.order.name, 13, fill=INK
        )
        yield svg.text(8, 30, _fitting(f"hottest: {self.order.hottest}", WIDTH - 16, 11), 11, fill=INK)
        for i, name in enumerate(self.map.above):
            yield from self._strip(8 + i % 4 * 88, TOP + i // 4 * 28, 80, name)
        for name in self.map.racks:
            yield from self._rack(name)
        yield from self._rings()
        for host in self.order.hosts if self.cell >= NUMBERED else ():
            yield self._label(host)
        for name, (x, y) in self._corner.items():
            yield from self._strip(x + PAD, y, self._block_width(self.cell) - 2 * PAD, name)

    def _rack(self, name: str) -> Iterator[str]:
        x, y = self._corner[name]
        width, lines = self._block_width(self.cell), self._lines(name)
        height = LABEL + lines * self.cell + PAD
        yield svg.box(x, y, width, height, fill="none", stroke=INK, stroke_opacity=0.3)
        for host in self.map.racks[name]:
            yield self._node(host)

    def _node(self, host: str) -> str:
        load, (x, y), size = self.order.link[host], self._centre[host], self.cell - 2
        title = f"{host}, place {self._position[host]}: {unit_ms(load):.2f} {UNIT}"
        left, top = round(x - size / 2), round(y - size / 2)
        return svg.box(left, top, size, size, fill=self._heat(load)[0], title=title, **self._frame(load))

    def _label(self, host: str) -> str:
        """The name of a node or its place, over the rings."""
        (x, y), half = self._centre[host], self.cell / 2
        words = _fitting(host, self.cell, 9) if self.cell >= NAMED else str(self._position[host])
        ink = self._heat(self.order.link[host])[1]
        return svg.text(x - half + 3, y - half + 10, words, 8, fill=ink, pointer_events="none")

    def _frame(self, load: LinkLoad) -> dict[str, object]:
        """The attributes that mark the hottest link."""
        return {"stroke": INK, "stroke_width": 2} if load is self.order.loads.hottest else {}

    def _strip(self, x: float, y: float, width: float, name: str) -> Iterator[str]:
        """The name of a switch, and its uplink."""
        load = self.order.link.get(name)
        yield svg.text(x, y + 11, _fitting(name, width, SMALL), SMALL, fill=INK)
        if load is None:
            yield svg.box(
                x, y + 14, width, 11, fill="none", stroke=INK, stroke_opacity=0.3, title=f"no uplink of {name}"
            )
            return
        fill, ink = self._heat(load)
        yield svg.box(x, y + 14, width, 11, fill=fill, title=_words(load), **self._frame(load))
        middle = {"text_anchor": "middle", "fill": ink, "pointer_events": "none"}
        yield svg.text(x + width / 2, y + 23, f"{unit_ms(load):.3g}", 9, **middle)

    def _rings(self) -> Iterator[str]:
        """A line for every hop between nodes; hops there and back bend to opposite sides."""
        hosts = self.order.hosts
        for dash, (_, flows) in zip(DASHES, _levels(self.map), strict=False):
            path = "".join(_bent(self._centre[hosts[a]], self._centre[hosts[b]]) for a, b in flows)
            lines = {"d": path, "fill": "none", "pointer_events": "none"}
            if len(flows) < FADED:
                yield svg.element(
                    "path", **lines, style="stroke:var(--paper,white)", stroke_width=3, stroke_opacity=0.7
                )
            width, opacity = (1.5, 0.8) if len(flows) < FADED else (0.6, 0.4)
            drawn = {"stroke": INK, "stroke_width": width, "stroke_opacity": opacity, "stroke_dasharray": dash}
            yield svg.element("path", **lines, **drawn)

    @cached_property
    def _position(self) -> dict[str, int]:
        return {host: i for i, host in enumerate(self.order.hosts)}

    @cached_property
    def _corner(self) -> dict[str, Point]:
        """The upper left corner of every rack, line by line."""
        found: dict[str, Point] = {}
        width, y = self._block_width(self.cell), self._top
        for line in self._lines_of_racks(self.cell):
            for i, name in enumerate(line):
                found[name] = (LEFT + i * (width + GAP), y)
            y += self._line_height(line, self.cell)
        return found

    @cached_property
    def _centre(self) -> dict[str, Point]:
        """The centre of every node; in a rack they follow the order, to and fro unless lines are rows of the torus."""
        found: dict[str, Point] = {}
        for name, hosts in self.map.racks.items():
            left, top = self._corner[name]
            for i, host in enumerate(sorted(hosts, key=self._position.__getitem__)):
                line, place = divmod(i, self.columns)
                if line % 2 and self.columns != self.map.row:
                    place = self.columns - 1 - place
                found[host] = (left + PAD + (place + 0.5) * self.cell, top + LABEL + (line + 0.5) * self.cell)
        return found

    @property
    def _top(self) -> int:
        return TOP + -(-len(self.map.above) // 4) * 28

    def _heat(self, load: LinkLoad) -> tuple[str, str]:
        """The colours of a link, and of text on it."""
        largest = _largest_ms(self.map)
        return HEAT[min(int(len(HEAT) * unit_ms(load) / largest), len(HEAT) - 1)] if largest else HEAT[0]

    def _lines(self, rack: str) -> int:
        return -(-len(self.map.racks[rack]) // self.columns)

    def _block_width(self, cell: int) -> int:
        return max(self.columns * cell, 40) + 2 * PAD

    def _lines_of_racks(self, cell: int) -> list[list[str]]:
        names, beside = [*self.map.racks], max(1, (WIDTH - 2 * LEFT + GAP) // (self._block_width(cell) + GAP))
        return [names[i : i + beside] for i in range(0, len(names), beside)]

    def _line_height(self, racks: Sequence[str], cell: int) -> int:
        return LABEL + max(map(self._lines, racks)) * cell + PAD + GAP

    def _tall(self, cell: int) -> int:
        return self._top + sum(self._line_height(line, cell) for line in self._lines_of_racks(cell))


def _legend(shown: Map) -> tuple[list[str], int]:
    """The colours and lines with their meaning, and the height."""
    most, wide = _largest_ms(shown), (WIDTH - 2 * LEFT) / len(HEAT)
    said = (
        f"{UNIT} of gradients that a link is busy;",
        "square: a node's own link, strip: the uplink of a rack or switch",
    )
    drawn = [svg.text(LEFT, 14 + 13 * i, line, SMALL, fill=INK) for i, line in enumerate(said)]
    for i, (fill, ink) in enumerate(HEAT):
        low, high = most * i / len(HEAT), most * (i + 1) / len(HEAT)
        drawn.append(svg.box(LEFT + i * wide, 33, wide - 2, 16, fill=fill))
        middle = {"text_anchor": "middle", "fill": ink}
        drawn.append(svg.text(LEFT + (i + 0.5) * wide, 45, f"{low:.3g} to {high:.3g}", SMALL, **middle))
    y = 65
    for dash, (name, _) in zip(DASHES, _levels(shown), strict=False):
        drawn.append(svg.element("path", d=f"M8 {y - 4}H48", stroke=INK, stroke_width=1.5, stroke_dasharray=dash))
        drawn.append(svg.text(54, y, name, SMALL, fill=INK))
        y += 16
    return drawn, y


def _levels(shown: Map) -> list[tuple[str, list[tuple[int, int]]]]:
    """(The rings in words, their hops between nodes) of each level with such hops, and not too many."""
    named = (
        f"{what}: rings of {size}" for what, size in zip(("rows", "columns", "groups"), shown.rings.dims, strict=False)
    )
    found = [(name, [*flows]) for name, flows in zip(named, shown.rings.levels, strict=True)]
    return [(name, hops) for name, hops in found if 0 < len(hops) <= MOST_HOPS]


def _words(load: LinkLoad) -> str:
    return f"{link_name(load)}: {unit_ms(load):.2f} {UNIT}"


def _largest_ms(shown: Map) -> float:
    return max(order.loads.largest_s_per_byte for order in shown.orders) * 1e11


def _bent(a: Point, b: Point) -> str:
    """A curve from a to b with its middle a bit to the left; longer ones bend more, up to a limit."""
    (x, y), (to_x, to_y) = a, b
    length = hypot(to_x - x, to_y - y) or 1.0
    bend = min(0.18 * length, 24.0) / length
    middle = ((x + to_x) / 2 + (to_y - y) * bend, (y + to_y) / 2 - (to_x - x) * bend)
    return f"M{x:.0f} {y:.0f}Q{middle[0]:.0f} {middle[1]:.0f} {to_x:.0f} {to_y:.0f}"


def _fitting(text: str, width: float, size: float) -> str:
    most = max(int(width / (size * LETTER)), 2)
    return text if len(text) <= most else f"{text[: most - 1]}…"
