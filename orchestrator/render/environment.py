"""The Jinja2 environment of job scripts: strict about names, and quoting by default.

A value that a template prints goes through `word`, without the template having to ask for it, so that no string of a
user's reaches a shell unquoted. Only `Text`, made by torusrun itself, is printed as it is.
"""

from __future__ import annotations

import shlex
from functools import cache
from pathlib import Path
from typing import Any

import jinja2

ESCAPES = {r"\x0a": r"\n", r"\x0d": r"\r", r"\x09": r"\t", "\\": r"\\", "'": r"\'"}


class Text(str):
    """Text that is already what it should be in the script, such as a directive line."""


def templates() -> Path:
    """The folder of templates: inside the installed package, or at the top of a checkout."""
    package = Path(__file__).resolve().parents[1]
    installed = package / "data" / "templates"
    return installed if installed.is_dir() else package.parent / "templates"


def word(value: Any) -> Text:
    """A value as one word of bash, on one line of the script whatever it holds.

    Schedulers read scripts by their lines, up to the last one, and would obey a line of a value that begins as their
    directives do. In $'...' every byte beyond printable ASCII is written in hexadecimal, which no locale reads as
    anything else.
    """
    text = str(value)
    if text.isprintable():
        return Text(shlex.quote(text))
    return Text("$'" + "".join(map(_escaped, text.encode(errors="surrogateescape"))) + "'")


def _escaped(byte: int) -> str:
    plain = chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
    return ESCAPES.get(plain, plain)


def _quote(value: Any) -> str:
    return value if isinstance(value, Text) else word(value)


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
