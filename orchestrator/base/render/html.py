"""HTML from templates. Every value is escaped, unless it is a `Markup` that torusrun itself makes."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup as Markup

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.render.jinja import environment


@cache
def _environment() -> jinja2.Environment:
    made = environment(_shown, escapes=True)
    made.filters["code"] = _with_code
    return made


def _with_code(text: str) -> Markup:
    """A text whose parts between backquotes are shown as code."""
    words, *others = private.plain(text).split("`")
    parts = [words, *(Markup("<code>{}</code>").format(part) if n % 2 == 0 else part for n, part in enumerate(others))]
    return Markup("").join(parts) if len(parts) % 2 else Markup.escape(text)


def _shown(value: Any) -> Any:
    """A text without control characters, which no document may hold."""
    return private.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def page(template: str, **values: Any) -> str:
    """The text of `template`, a path below templates/. Raises jinja2.UndefinedError if a value is missing."""
    return _environment().get_template(template).render(**values)
