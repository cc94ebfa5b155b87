"""Whether a page that another machine made is one of ours: a hostile login node could send a page that acts.

Ours begin with a policy of content that forbids scripts and everything from elsewhere. They have no links, no forms and
no comments.
"""

from __future__ import annotations

from html.parser import HTMLParser

BEGINS = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
"""
TAGS = {
    "html", "head", "meta", "title", "style", "body", "main", "header", "footer", "section", "article", "div",
    "span", "p", "h1", "h2", "h3", "h4", "ul", "ol", "li", "dl", "dt", "dd", "table", "thead", "tbody", "tr", "th",
    "td", "strong", "code", "pre", "wbr", "br", "figure", "figcaption", "svg", "line", "circle", "polyline",
    "polygon", "text",
}  # fmt: skip
ATTRIBUTES = {
    "lang", "charset", "name", "content", "class", "role", "aria-label", "viewbox", "x", "y", "x1", "x2", "y1", "y2",
    "cx", "cy", "r", "points", "data-of",
}  # fmt: skip


def objection(html: str) -> str:
    """What a page has that ours have not; '' if there is nothing."""
    if not html.startswith(BEGINS):
        return "another beginning"
    reader = _PageReader()
    reader.feed(html.removeprefix(BEGINS))
    reader.close()
    return reader.objection


class _PageReader(HTMLParser):
    objection = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        other = [name for name, _ in attrs if name not in ATTRIBUTES]
        if tag not in TAGS or other:
            self.objection = self.objection or f"<{' '.join([tag, *other])}>"

    def handle_comment(self, data: str) -> None:
        self.objection = self.objection or "a comment"

    def handle_decl(self, decl: str) -> None:
        self.objection = self.objection or "a declaration"

    def unknown_decl(self, data: str) -> None:
        self.objection = self.objection or "a declaration"

    def handle_pi(self, data: str) -> None:
        self.objection = self.objection or "an instruction"
