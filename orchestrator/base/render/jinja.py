"""The Jinja2 environment that both kinds of output share: a template that lacks a value is an error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jinja2

from torusrun.orchestrator.base.shipped import shipped


def environment(finalize: Callable[[Any], Any], *, escapes: bool) -> jinja2.Environment:
    """An environment for the shipped templates that passes every printed value through `finalize`."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(shipped("templates")),
        undefined=jinja2.StrictUndefined,
        finalize=finalize,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=escapes,
    )
