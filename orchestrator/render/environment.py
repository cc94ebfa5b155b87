"""The Jinja2 environment of job scripts: strict about names, and quoting by default.

A value that a template prints goes through `shlex.quote`, without the template having to ask for it, so that no string
of a user's reaches a shell unquoted. Only `Text`, made by torusrun itself, is printed as it is.
"""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path
from typing import Any

import jinja2


class Text(str):
    """Text that is already what it should be in the script, such as a directive line."""


def templates() -> Path:
    """The folder of templates: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data" / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def _quote(value: Any) -> str:
    return value if isinstance(value, Text) else shlex.quote(str(value))


@cache
def _environment() -> jinja2.Environment:
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(templates()),
        undefined=jinja2.StrictUndefined,
        finalize=_quote,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )


def render(template: str, **values: Any) -> str:
    """The text of `template` (a path below templates/). Raises jinja2.UndefinedError for a value it is not given."""
    return _environment().get_template(template).render(**values)
