"""Builds the command that runs a rank's program in its image."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from orchestrator.base import private
from orchestrator.base.errors import SiteError, explained
from orchestrator.images.command import TMPFS, Bind, ContainerExec, ContainerLaunch, inside
from orchestrator.images.runtime import Runtime
from orchestrator.job import node_folder
from orchestrator.job.mounted import mounted
from orchestrator.job.stage import copied
from orchestrator.runs.folder.run_folder import Attempt


def contained(
    kept: dict[str, Any],
    command: list[str],
    given: Mapping[str, str],
    inherited: Mapping[str, str],
    attempt: Attempt,
    rank: int,
    held: contextlib.ExitStack,
) -> tuple[list[str], dict[str, str]]:
    """(arguments, environment) that run `command` by the launch order `kept`, from the node's own copy if it is staged.

    If the site asks for one mount per node, the mount stays until `held` is closed.

    Values that the runtime cannot pass are written beside the rank's records, and read from there in the image.
    Raises SiteError if the image cannot be staged, or a variable cannot be passed in.
    """
    image = Path(kept["image"])
    if kept["stage"]:
        image = copied(image, kept["stage"], kept["sha256"], attempt.folder)
    if kept["writable"] not in ("", TMPFS):
        kept = {**kept, "writable": str(node_folder.of_rank(kept["writable"], attempt, rank))}
    if kept["instance"]:
        held.enter_context(mounted(_container(kept, image), inherited))
    started = start(kept, image, command, given, inherited, attempt.rank_variables(rank))
    if started.file_text:
        file = attempt.rank_variables(rank)
        with explained(f"{file}: cannot be written"):
            private.write_bytes(file, started.file_text.encode("utf-8", "surrogateescape"))
    return list(started.argv), started.environment


def start(
    kept: Mapping[str, Any],
    image: Path,
    command: Sequence[str],
    given: Mapping[str, str],
    inherited: Mapping[str, str],
    file: Path,
) -> ContainerLaunch:
    """The launch of `command` in `image` by the launch order `kept`; `file` is for values that need a file.

    Raises SiteError if a variable or a bind cannot be passed in.
    """
    try:
        return inside(_container(kept, image), command, given, inherited, str(file))
    except ValueError as error:
        raise SiteError(f"{image}: cannot be started: {error}; correct 'env' or 'container' of the site") from None


def _container(kept: Mapping[str, Any], image: Path) -> ContainerExec:
    runtime = Runtime(kept["runtime"]["command"], kept["runtime"]["product"], tuple(kept["runtime"]["version"]))
    binds = tuple(Bind(**bind) for bind in kept["binds"])
    return ContainerExec(
        runtime,
        str(image),
        binds,
        gpu=kept["gpu"],
        writable=kept["writable"],
        directory=kept["directory"],
        extra=tuple(kept["extra"]),
        environment=kept["environment"],
        instance=kept["instance"],
    )
