"""HTML from templates. Every value is escaped, unless it is a `Markup` that torusrun itself makes."""

from __future__ import annotations

from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup as Markup

from orchestrator.base import private
from orchestrator.base.render.jinja import environment


@cache
def _environment() -> jinja2.Environment:
    return environment(_shown, escapes=True)


def _shown(value: Any) -> Any:
    """A text without control characters, which no document may hold."""
    return private.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def page(template: str, **values: Any) -> str:
    """The text of `template`, a path below templates/. Raises jinja2.UndefinedError if a value is missing."""
    return _environment().get_template(template).render(**values)
