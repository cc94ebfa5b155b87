"""A rank's command, put into its image."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from orchestrator import private
from orchestrator.containers.command import Bind, Container, inside
from orchestrator.containers.runtime import Runtime
from orchestrator.errors import SiteError
from orchestrator.job.stage import copied
from orchestrator.runs.folder import Attempt


def contained(
    kept: dict[str, Any],
    command: list[str],
    given: Mapping[str, str],
    inherited: Mapping[str, str],
    attempt: Attempt,
    rank: int,
) -> tuple[list[str], dict[str, str]]:
    """(arguments, environment) that run `command` as the launch order says, from this node's own copy if it is staged.

    Values that the runtime cannot carry are written beside the rank's records, and read from there inside.
    Raises SiteError when the image cannot be staged, or a variable cannot be handed in.
    """
    image = Path(kept["image"])
    if kept["stage"]:
        image = copied(image, kept["stage"], kept["sha256"], attempt.folder)
    runtime = Runtime(kept["runtime"]["command"], kept["runtime"]["product"], tuple(kept["runtime"]["version"]))
    binds = tuple(Bind(**bind) for bind in kept["binds"])
    container = Container(runtime, str(image), binds, kept["gpus"], kept["directory"], tuple(kept["extra"]))
    file = attempt.ranks / f"{rank:04d}.env"
    try:
        started = inside(container, command, given, inherited, str(file))
        if started.file_text:
            private.write_bytes(file, started.file_text.encode("utf-8", "surrogateescape"))
    except ValueError as error:
        raise SiteError(f"{image}: cannot be started: {error}; correct 'env' or 'container.bind' of the site") from None
    except OSError as error:
        raise SiteError(f"{file}: cannot be written: {error.strerror}") from None
    return list(started.argv), started.environment
