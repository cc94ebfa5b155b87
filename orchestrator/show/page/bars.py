"""Bars as SVG that is as wide as its place: positions are shares of the width, and the texts are beside it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from xml.sax.saxutils import escape

from torusrun.orchestrator.base.render.html import Markup
from torusrun.orchestrator.base.shown import svg
from torusrun.orchestrator.base.terminal.plain import plain

LEAST = 0.002  # of the width: a part that is there is visible


@dataclass(frozen=True)
class BarPart:
    """A part of a bar from one share of the width to another, its CSS class, and what hovering over it shows."""

    begins: float
    ends: float
    kind: str
    title: str


def bar(parts: Iterable[BarPart], height: int) -> Markup:
    drawn = "".join(map(_rect, parts))
    return Markup(svg.element("svg", drawn, **{"class": "bar", "width": "100%", "height": height, "role": "img"}))


def _rect(part: BarPart) -> str:
    width = max(part.ends - part.begins, LEAST)
    begins = min(max(part.begins, 0.0), 1.0 - LEAST)
    title = svg.element("title", escape(plain(part.title)))
    size = {"x": f"{begins:.3%}", "width": f"{min(width, 1 - begins):.3%}", "height": "100%"}
    return svg.element("rect", title, **{"class": part.kind}, **size)
