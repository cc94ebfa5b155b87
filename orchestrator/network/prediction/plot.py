"""Curves over the number of GPUs, both axes logarithmic: in characters, or as SVG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import log

from training.counted import counted

Curves = Mapping[str, Sequence[tuple[float, float]]]  # name: (GPUs, seconds)
COLOURS = ("#c0392b", "#2471a3", "#229954", "#af601a", "#7d3c98", "#17202a", "#7f8c8d")


def characters(curves: Curves, width: int = 72, height: int = 18) -> str:
    """A plot of the terminal: each curve by the first letter of its name, '*' where several meet."""
    cells = [[" "] * width for _ in range(height)]
    low, high = _range(curves)
    for name, points in curves.items():
        for right, up in _placed(points, curves):
            row, column = height - 1 - round(up * (height - 1)), round(right * (width - 1))
            cells[row][column] = name[0] if cells[row][column] in (" ", name[0]) else "*"
    lines = ["".join(row).rstrip() for row in cells]
    first, last = (counted(round(end), "GPU") for end in _ends(curves))
    legend = ", ".join(f"{name[0]} {name}" for name in curves)
    foot = first.ljust(width - 14) + last.rjust(14)
    return "\n".join([f"{high * 1e3:.2f} ms", *lines, f"{low * 1e3:.2f} ms", foot, legend + ", * several"])


def svg(curves: Curves, width: int = 720, height: int = 420) -> str:
    """The same as a picture."""
    low, high = _range(curves)
    first, last = (counted(round(end), "GPU") for end in _ends(curves))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" '
        'font-family="sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="white"/>',
        f'<text x="8" y="24">{high * 1e3:.2f} ms</text><text x="8" y="{height - 40}">{low * 1e3:.2f} ms</text>',
        f'<text x="80" y="{height - 14}">{first}</text>',
        f'<text x="{width - 120}" y="{height - 14}" text-anchor="end">{last}</text>',
    ]
    for index, (name, points) in enumerate(curves.items()):
        colour = COLOURS[index % len(COLOURS)]
        at = [(80 + r * (width - 200), height - 44 - up * (height - 68)) for r, up in _placed(points, curves)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in at)
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{width - 104}" y="{32 + 18 * index}" fill="{colour}">{name}</text>')
    return "\n".join([*parts, "</svg>\n"])


def _placed(points: Sequence[tuple[float, float]], curves: Curves) -> list[tuple[float, float]]:
    """Points as parts of the width and the height."""
    across, up = _ends(curves), _range(curves)
    return [(_part(x, *across), _part(y, *up)) for x, y in points]


def _part(value: float, low: float, high: float) -> float:
    return log(value / low) / log(high / low) if high > low else 0.5


def _ends(curves: Curves) -> tuple[float, float]:
    every = [x for points in curves.values() for x, _ in points]
    return min(every), max(every)


def _range(curves: Curves) -> tuple[float, float]:
    every = [y for points in curves.values() for _, y in points if y > 0]
    return min(every), max(every)
