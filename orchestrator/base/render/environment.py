"""The Jinja2 environment of job scripts. It quotes every value, and refuses names without a value.

Every printed value goes through `word`, so no string of a user reaches a shell unquoted. Only `Text`, which torusrun
itself makes, is printed unchanged.
"""

from __future__ import annotations

import shlex
from functools import cache
from typing import Any

import jinja2

from torusrun.orchestrator.base.render.jinja import environment

ESCAPES = {r"\x0a": r"\n", r"\x0d": r"\r", r"\x09": r"\t", "\\": r"\\", "'": r"\'"}


class Text(str):
    """Text that goes into the script unchanged, such as a line with a directive."""


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


def _quote(value: Any) -> str:
    return value if isinstance(value, Text) else word(value)


@cache
def _environment() -> jinja2.Environment:
    return environment(_quote, escapes=False)


def render(template: str, **values: Any) -> str:
    """The text of `template`, a path below templates/. Raises jinja2.UndefinedError if a value is missing."""
    return _environment().get_template(template).render(**values)
