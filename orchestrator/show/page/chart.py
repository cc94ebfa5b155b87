"""A small chart as SVG: lines with names at their ends, few ticks, and a unit on each axis. CSS has the colours."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import ceil, floor, inf, log10
from xml.sax.saxutils import escape

from torusrun.orchestrator.base.shown import svg
from torusrun.orchestrator.base.shown.curve import Axis, Points
from torusrun.orchestrator.base.templates import Markup

MOST_TICKS = 5
LEAST_TICKS = 1e-300  # the shortest axis with more than one tick
ROUND = (1.0, 2.0, 2.5, 5.0, 10.0)
UNITS = ((86400.0, "days", 3.0), (3600.0, "hours", 2.0), (60.0, "minutes", 2.0), (1.0, "seconds", 0.0))


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


def powers(low: float, high: float) -> list[float]:
    """Numbers from `low` to `high` for a logarithmic axis: powers of ten, and if they are few 2 and 5 of each."""
    first, last = floor(log10(low)), ceil(log10(high))
    every = max(1, ceil((last - first) / MOST_TICKS))
    found = [10.0**number for number in range(first, last + 1, every)]
    if last - first <= 3:
        found = [factor * power for power in found for factor in (1.0, 2.0, 5.0)]
    return [value for value in found if low <= value <= high]


def written(values: list[float]) -> Callable[[float], str]:
    """How to write these ticks: '0.25', '40', '12k', '1.5M', all with equally many digits."""
    largest = max(map(abs, values), default=0.0)
    for least, size, unit in ((1e9, 1e9, "G"), (1e6, 1e6, "M"), (1e4, 1e3, "k")):
        if largest >= least:
            return lambda value: f"{value / size:.6g}{unit}" if value else "0"
    if largest < 1e-3:
        return "{:.3g}".format
    gap = min((later - one for one, later in zip(values, values[1:], strict=False)), default=largest)
    digits = next(n for n in range(8) if n == 7 or abs(gap * 10**n - round(gap * 10**n)) < 1e-6 * gap * 10**n)
    return lambda value: f"{value:.{digits}f}"


def time_unit(longest_s: float) -> tuple[float, str]:
    """(seconds, name) of the unit in which a time axis is written."""
    return next((size, name) for size, name, least in UNITS if longest_s >= size * least)


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
        up = powers(low, high) if self._log else ticks(low, high)
        show = self.show or ("{:g}".format if self._log else written(up))
        for value in up:
            _, y = self._at((0.0, value))
            yield svg.element("line", x1=LEFT, x2=f"{self._right:.1f}", y1=f"{y:.1f}", y2=f"{y:.1f}")
            yield _text(LEFT - 6, y + 4, show(value), "y")
        size, unit = time_unit(self._across[1]) if self.times else (1.0, self.unit)
        along = ticks(self._across[0] / size, self._across[1] / size)
        write = written(along)
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
