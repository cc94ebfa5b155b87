"""Text from the templates that torusrun ships; every value is quoted, for the shell or for HTML."""

from __future__ import annotations

import shlex
from collections.abc import Callable
from functools import cache
from typing import Any

import jinja2
from markupsafe import Markup as Markup

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.shipped import shipped

ESCAPES = {r"\x0a": r"\n", r"\x0d": r"\r", r"\x09": r"\t", "\\": r"\\", "'": r"\'"}


class Text(str):
    """Text that goes into a script unchanged, such as a line with a directive."""


def render(template: str, **values: Any) -> str:
    """The script of `template`, a path below templates/. Raises jinja2.UndefinedError if a value is missing.

    Every printed value goes through `word`, so no string of a user reaches a shell unquoted. Only `Text`, which
    torusrun itself makes, is printed unchanged.
    """
    return _for_shell().get_template(template).render(**values)


def page(template: str, **values: Any) -> str:
    """The HTML of `template`, as `render`; every value is escaped, unless it is `Markup` that torusrun itself makes."""
    return _for_html().get_template(template).render(**values)


def word(value: Any) -> Text:
    """A value as one word of bash, always on one line of the script.

    Schedulers read all lines of a script. They would obey a line of a value that begins like a directive. In $'...'
    every byte that is not printable ASCII is written in hexadecimal, which means the same in every locale.
    """
    text = str(value)
    if text.isprintable():
        return Text(shlex.quote(text))
    return Text("$'" + "".join(map(_escaped, text.encode(errors="surrogateescape"))) + "'")


def _escaped(byte: int) -> str:
    plain = chr(byte) if 0x20 <= byte < 0x7F else f"\\x{byte:02x}"
    return ESCAPES.get(plain, plain)


def _quoted(value: Any) -> str:
    return value if isinstance(value, Text) else word(value)


def _shown(value: Any) -> Any:
    """A text without control characters, which no document may hold."""
    return private.plain(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _with_code(text: str) -> Markup:
    """A text whose parts between backquotes are shown as code."""
    words, *others = private.plain(text).split("`")
    parts = [words, *(Markup("<code>{}</code>").format(part) if n % 2 == 0 else part for n, part in enumerate(others))]
    return Markup("").join(parts) if len(parts) % 2 else Markup.escape(text)


@cache
def _for_shell() -> jinja2.Environment:
    return _environment(_quoted, escapes=False)


@cache
def _for_html() -> jinja2.Environment:
    made = _environment(_shown, escapes=True)
    made.filters["code"] = _with_code
    return made


def _environment(finalize: Callable[[Any], Any], *, escapes: bool) -> jinja2.Environment:
    """An environment that passes every printed value through `finalize`; a template that lacks a value is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("templates")),
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escapes,
    )
