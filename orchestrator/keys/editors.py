"""The line by which an editor knows the keys of a file, and the JSON schema that it names, in the user's own folder."""

from __future__ import annotations

import contextlib
import json
from typing import Any

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.keys.load import site_folders
from torusrun.orchestrator.keys.run import RunSpec
from torusrun.orchestrator.keys.site import Site
from torusrun.orchestrator.keys.write import schema

SPECS: dict[str, type[Any]] = {"run": RunSpec, "site": Site}


def schema_line(what: str) -> str:
    """The first line of a new run or site file, for editors that use yaml-language-server.

    The schema is written beside the folder of sites, unless it is up to date. If that is impossible, the line is ''.
    """
    content = json.dumps(schema(SPECS[what], f"torusrun {what}"), indent=1).encode()
    file = site_folders()[0].parent / f"{what}.schema.json"
    with contextlib.suppress(OSError, TorusrunError):
        private.make(file.parent)
        if not file.exists() or file.read_bytes() != content:
            private.write_bytes(file, content)
        return f"# yaml-language-server: $schema={file.as_uri()}\n"
    return ""
