"""A small chart as SVG: lines with names at their ends, few ticks, and a unit on each axis. CSS has the colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import inf
from xml.sax.saxutils import escape

from torusrun.orchestrator.base.render.html import Markup
from torusrun.orchestrator.base.shown import svg
from torusrun.orchestrator.base.shown.curve import Axis, Points
from torusrun.orchestrator.show.page import ticks

WIDTH, HEIGHT = 360, 216
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 40
LETTER = 6.4  # the width of a character of a name, about
APART = 13.0  # the least distance between names
LOG_RATIO = 50.0
COLOURS = 6  # classes c0 to c5; later lines are dashed


@dataclass(frozen=True)
class ChartLine:
    """Groups of points, which are joined within each group. `number` chooses the colour.

    `style` is 'solid', 'dots' (each point is marked, too) or 'predicted' (dashed and grey). `bands` have (x, smallest,
    largest) of the values around a line of means.
    """

    name: str
    groups: Sequence[Points]
    number: int = 0
    style: str = "solid"
    bands: Sequence[Sequence[tuple[float, float, float]]] = ()

    @property
    def classes(self) -> str:
        if self.style == "predicted":
            return "predicted"
        return f"c{self.number % COLOURS}{' dashed' if self.number >= COLOURS else ''}"


@dataclass(frozen=True)
class Chart:
    """Lines over one axis. `from_zero`: the y axis begins at 0. `times`: x is in seconds."""

    title: str
    unit: str
    lines: Sequence[ChartLine]
    from_zero: bool = False
    times: bool = False
    show: Callable[[float], str] | None = None
    may_be_log: bool = False

    @property
    def svg(self) -> Markup:
        drawn = "".join((*self._grid(), *self._bands(), *self._lines(), *self._names()))
        size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "class": "chart", "role": "img", "aria-label": self.title}
        return Markup(svg.element("svg", drawn, **size))

    @property
    def _points(self) -> list[tuple[float, float]]:
        points = [point for line in self.lines for group in line.groups for point in group]
        bands = [each for line in self.lines for band in line.bands for each in band]
        return [*points, *((x, low) for x, low, _ in bands), *((x, high) for x, _, high in bands)]

    @property
    def _across(self) -> tuple[float, float]:
        found = [x for x, _ in self._points]
        return min(0.0, min(found)), max(found) or 1.0

    @property
    def _log(self) -> bool:
        found = [y for _, y in self._points]
        return self.may_be_log and min(found) > 0 and LOG_RATIO < max(found) / min(found) < inf

    @property
    def _up(self) -> tuple[float, float]:
        """The ends of the y axis: a bit beyond the smallest and the largest value."""
        found = [y for _, y in self._points]
        low, high = min(found), max(found)
        if self._log:
            return low, high
        room = (high - low) * 0.04 or abs(high) * 0.04 or 1.0
        return (0.0 if self.from_zero else low - room), high + room

    @property
    def _right(self) -> float:
        """Where the plot ends: the names of lines are on its right."""
        return WIDTH - RIGHT - (6 + LETTER * longest if (longest := max(len(line.name) for line in self.lines)) else 0)

    def _at(self, point: tuple[float, float]) -> tuple[float, float]:
        right, up = Axis().share(point[0], self._across), Axis(log=self._log).share(point[1], self._up)
        return LEFT + right * (self._right - LEFT), HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP)

    def _grid(self) -> Iterator[str]:
        """The ticks of both axes with lines for those of y, and the unit of x."""
        low, high = self._up
        up = ticks.powers(low, high) if self._log else ticks.ticks(low, high)
        show = self.show or ("{:g}".format if self._log else ticks.written(up))
        for value in up:
            _, y = self._at((0.0, value))
            yield svg.element("line", x1=LEFT, x2=f"{self._right:.1f}", y1=f"{y:.1f}", y2=f"{y:.1f}")
            yield _text(LEFT - 6, y + 4, show(value), "y")
        size, unit = ticks.time_unit(self._across[1]) if self.times else (1.0, self.unit)
        along = ticks.ticks(self._across[0] / size, self._across[1] / size)
        write = ticks.written(along)
        for value in along:
            x, _ = self._at((value * size, high))
            yield _text(x, HEIGHT - BOTTOM + 16, write(value), "x")
        yield _text((LEFT + self._right) / 2, HEIGHT - 6, f"{unit} {self.unit}" if self.times else unit, "x unit")

    def _bands(self) -> Iterator[str]:
        for line in self.lines:
            for band in line.bands:
                edge = [(x, high) for x, _, high in band] + [(x, low) for x, low, _ in reversed(band)]
                points = " ".join(f"{x:.1f},{y:.1f}" for x, y in map(self._at, edge))
                yield svg.element("polygon", **{"class": line.classes, "points": points})

    def _lines(self) -> Iterator[str]:
        for line in self.lines:
            for group in line.groups:
                at = [self._at(point) for point in group]
                points = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
                yield svg.element("polyline", **{"class": line.classes, "points": points})
                marked = line.style == "dots" or len(group) == 1
                for x, y in at if marked else ():
                    yield svg.element("circle", **{"class": line.classes}, cx=f"{x:.1f}", cy=f"{y:.1f}", r=2)

    def _names(self) -> Iterator[str]:
        """The name of each line at its end; names that are too close move apart."""
        named = sorted(
            ((self._at(line.groups[-1][-1])[1], line) for line in self.lines if line.name), key=lambda found: found[0]
        )
        y, bottom = float("-inf"), HEIGHT - BOTTOM - APART * (len(named) - 1)
        for wanted, line in named:
            y = max(min(wanted + 4, bottom), y)
            yield _text(self._right + 6, y, line.name, f"name {line.classes}")
            y, bottom = y + APART, bottom + APART


def _text(x: float, y: float, words: str, classes: str) -> str:
    return svg.element("text", escape(words), x=f"{x:.1f}", y=f"{y:.1f}", **{"class": classes})
