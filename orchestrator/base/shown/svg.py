"""Pictures as SVG."""

from __future__ import annotations

from collections.abc import Iterable
from xml.sax.saxutils import escape, quoteattr


def document(width: int, height: int, elements: Iterable[str]) -> str:
    """A whole document, with a white background."""
    inner = "\n".join(["", element("rect", width=width, height=height, fill="white"), *elements, ""])
    size = {"width": str(width), "height": str(height), "viewBox": f"0 0 {width} {height}"}
    return element("svg", inner, xmlns="http://www.w3.org/2000/svg", font_family="sans-serif", **size) + "\n"


def element(name: str, inner: str = "", /, **attributes: object) -> str:
    """One element with markup in it; _ in the names of attributes becomes -."""
    written = "".join(f" {key.replace('_', '-')}={quoteattr(str(value))}" for key, value in attributes.items())
    return f"<{name}{written}>{inner}</{name}>"


def text(x: float, y: float, words: str, size: int = 12, **attributes: object) -> str:
    return element("text", escape(words), x=x, y=y, font_size=size, **attributes)


def box(x: float, y: float, width: float, height: float, *, fill: str, title: str = "", **attributes: object) -> str:
    """A rectangle; hovering over it shows its title."""
    inner = element("title", escape(title)) if title else ""
    return element("rect", inner, x=x, y=y, width=width, height=height, rx=2, fill=fill, **attributes)
