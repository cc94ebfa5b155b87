"""Draws lines over one axis as SVG. CSS has the colours."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, log10
from xml.sax.saxutils import escape, quoteattr

from torusrun.orchestrator.base.shown.curve import Points, share
from torusrun.orchestrator.base.templates import Markup

MOST_TICKS = 5
LEAST_TICKS = 1e-300  # the shortest axis with more than one tick
ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)


def ticks(low: float, high: float, most: int = MOST_TICKS) -> list[float]:
    """At most `most` multiples of a round number, all from `low` to `high`."""
    if not high - low > LEAST_TICKS:
        return [low]
    size = 10.0 ** floor(log10((high - low) / most))
    for step in (size * factor * scale for scale in (1.0, 10.0) for factor in ROUND):
        first, last = ceil(low / step - 1e-9), floor(high / step + 1e-9)
        if last - first < most:
            return [number * step for number in range(first, last + 1)]
    raise AssertionError


def written(values: list[float]) -> Callable[[float], str]:
    """How to write these ticks: '0.25', '40', '12k', '1.5M', all with equally many digits."""
    largest = max(map(abs, values), default=0.0)
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= least:
            return lambda value: f"{value / size:.6g}{unit}" if value else "0"
    if largest < 1e-3:
        return "{:.3g}".format
    gap = min((later - earlier for earlier, later in zip(values, values[1:], strict=False)), default=largest)
    digits = next(n for n in range(8) if n == 7 or abs(gap * 10**n - round(gap * 10**n)) < 1e-6 * gap * 10**n)
    return lambda value: f"{value:.{digits}f}"


WIDTH, HEIGHT = 360, 216
LEFT, RIGHT, TOP, BOTTOM = 46, 12, 12, 40
LETTER = 6.4  # the width of a character of a name, about
APART = 13.0  # the least distance between names
COLOURS = 6  # classes c0 to c5; later lines are dashed


@dataclass(frozen=True)
class ChartLine:
    """Points that a line joins. `number` chooses the colour.

    With `dots` each point is marked, too. `band` has (x, smallest, largest) of the values around a line of means.
    """

    name: str
    points: Points
    number: int = 0
    dots: bool = False
    band: Sequence[tuple[float, float, float]] = ()

    @property
    def classes(self) -> str:
        return f"c{self.number % COLOURS}{' dashed' if self.number >= COLOURS else ''}"


@dataclass(frozen=True)
class Chart:
    """Lines over one axis. With `from_zero` the y axis begins at 0."""

    title: str
    unit: str
    lines: Sequence[ChartLine]
    from_zero: bool = False
    show: Callable[[float], str] | None = None

    @property
    def svg(self) -> Markup:
        drawn = "".join((*self._grid(), *self._bands(), *self._lines(), *self._names()))
        size = {"viewBox": f"0 0 {WIDTH} {HEIGHT}", "class": "chart", "role": "img", "aria-label": self.title}
        return Markup(_element("svg", drawn, **size))

    @property
    def _points(self) -> list[tuple[float, float]]:
        band = [each for line in self.lines for each in line.band]
        points = [point for line in self.lines for point in line.points]
        return [*points, *((x, low) for x, low, _ in band), *((x, high) for x, _, high in band)]

    @property
    def _across(self) -> tuple[float, float]:
        values = [x for x, _ in self._points]
        return min(0.0, min(values)), max(values) or 1.0

    @property
    def _up(self) -> tuple[float, float]:
        """The ends of the y axis: a bit beyond the smallest and the largest value."""
        values = [y for _, y in self._points]
        low, high = min(values), max(values)
        room = (high - low) * 0.04 or abs(high) * 0.04 or 1.0
        return (0.0 if self.from_zero else low - room), high + room

    @property
    def _right(self) -> float:
        """Where the plot ends: the names of lines are on its right."""
        return WIDTH - RIGHT - (6 + LETTER * longest if (longest := max(len(line.name) for line in self.lines)) else 0)

    def _at(self, point: tuple[float, float]) -> tuple[float, float]:
        right, up = share(point[0], self._across), share(point[1], self._up)
        return LEFT + right * (self._right - LEFT), HEIGHT - BOTTOM - up * (HEIGHT - BOTTOM - TOP)

    def _grid(self) -> Iterator[str]:
        """The ticks of both axes with lines for those of y, and the unit of x."""
        low, high = self._up
        up = ticks(low, high)
        show = self.show or written(up)
        for value in up:
            _, y = self._at((0.0, value))
            yield _element("line", x1=LEFT, x2=f"{self._right:.1f}", y1=f"{y:.1f}", y2=f"{y:.1f}")
            yield _text(LEFT - 6, y + 4, show(value), "y")
        along = ticks(*self._across)
        write = written(along)
        for value in along:
            x, _ = self._at((value, high))
            yield _text(x, HEIGHT - BOTTOM + 16, write(value), "x")
        yield _text((LEFT + self._right) / 2, HEIGHT - 6, self.unit, "x unit")

    def _bands(self) -> Iterator[str]:
        for line in self.lines:
            edge = [(x, high) for x, _, high in line.band] + [(x, low) for x, low, _ in reversed(line.band)]
            if edge:
                yield _element("polygon", **{"class": line.classes, "points": _joined(map(self._at, edge))})

    def _lines(self) -> Iterator[str]:
        for line in self.lines:
            at = [self._at(point) for point in line.points]
            yield _element("polyline", **{"class": line.classes, "points": _joined(at)})
            for x, y in at if line.dots else ():
                yield _element("circle", **{"class": line.classes}, cx=f"{x:.1f}", cy=f"{y:.1f}", r=2)

    def _names(self) -> Iterator[str]:
        """The name of each line at its end; names that are too close move apart."""
        ends = [(self._at(line.points[-1])[1], line) for line in self.lines if line.name]
        named = sorted(ends, key=lambda end: end[0])
        y, bottom = float("-inf"), HEIGHT - BOTTOM - APART * (len(named) - 1)
        for wanted, line in named:
            y = max(min(wanted + 4, bottom), y)
            yield _text(self._right + 6, y, line.name, f"name {line.classes}")
            y, bottom = y + APART, bottom + APART


def _joined(points: Iterable[tuple[float, float]]) -> str:
    return " ".join(f"{x:.1f},{y:.1f}" for x, y in points)


def _element(name: str, inner: str = "", /, **attributes: object) -> str:
    """An element with markup in it."""
    written = "".join(f" {key}={quoteattr(str(value))}" for key, value in attributes.items())
    return f"<{name}{written}>{inner}</{name}>"


def _text(x: float, y: float, words: str, classes: str) -> str:
    return _element("text", escape(words), x=f"{x:.1f}", y=f"{y:.1f}", **{"class": classes})
