"""A rank's command, put into its image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator.containers.command import Bind, Container, inside
from orchestrator.containers.runtime import Runtime
from orchestrator.job.stage import copied


def contained(
    kept: dict[str, Any], command: list[str], given: Mapping[str, str], inherited: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """(arguments, environment) that run `command` as the launch order says, from this node's own copy if it is staged.

    Raises SiteError when the image cannot be staged.
    """
    image = copied(Path(kept["image"]), kept["stage"], kept["sha256"]) if kept["stage"] else Path(kept["image"])
    runtime = Runtime(kept["runtime"]["command"], kept["runtime"]["product"], tuple(kept["runtime"]["version"]))
    binds = tuple(Bind(**bind) for bind in kept["binds"])
    container = Container(runtime, str(image), binds, kept["gpus"], kept["directory"], tuple(kept["extra"]))
    started = inside(container, command, given, inherited)
    return list(started.argv), started.environment
