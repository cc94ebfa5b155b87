"""Quotes values for definition files, in which every section has its own rules of quoting.

The runtime splits a definition into stages and sections by its lines before any shell reads it. So shell quotes alone
do not protect a value: a line in it that begins with `%post` starts a section, and one with `Bootstrap:` a stage.
`{{ NAME }}` is replaced everywhere (Apptainer 1.2, SingularityCE 4.0 and newer).
"""

from __future__ import annotations

import re

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.templates import Text

_STAGE = re.compile("(?i)(bootstrap)(:)")


def shell(value: str) -> Text:
    """`value` as one word of a shell section.

    A line break stays inside quotes, but no line begins or ends with text of the value: it has `''` there.
    Raises UserError for a NUL, which an environment cannot hold.
    """
    if "\0" in value:
        raise UserError(f"{value!r}: a NUL character cannot be part of a value")
    if re.fullmatch("[A-Za-z0-9@+=,./:_-]+", value) and not _STAGE.search(value):
        return Text(value)
    quoted = "'" + value.replace("'", "'\"'\"'") + "'"
    for _ in range(2):  # the second pass is for a second brace in a row
        quoted = quoted.replace("{{", "{''{")
    return Text(_STAGE.sub(r"\1''\2", quoted).replace("\n", "''\n''"))


def export(name: str, value: str) -> Text:
    """A line of a shell section that sets a variable."""
    return Text(f"export {name}={shell(value)}")


def line(value: str, what: str) -> Text:
    """`value` as the rest of a header's or label's line, which has no quotes. Raises UserError if it cannot be one."""
    if value != value.strip() or len(value.splitlines()) != 1 or re.search(r"[\x00-\x1f\x7f#]|\{\{|\\$", value):
        raise UserError(f"{what} {value!r} cannot be written into a definition: it must be one plain line")
    return Text(value)
