"""Builds the command that runs a rank's program in its image."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from torusrun.orchestrator.base import private
from torusrun.orchestrator.base.errors import SiteError, explained
from torusrun.orchestrator.images.command import NO_SECRETS, ContainerExec, ContainerLaunch, SecretVariables, inside
from torusrun.orchestrator.run.folder.run_folder import Attempt


def contained(
    image: ContainerExec,
    command: Sequence[str],
    given: Mapping[str, str],
    inherited: Mapping[str, str],
    attempt: Attempt,
    rank: int,
    secret: SecretVariables = NO_SECRETS,
) -> tuple[list[str], dict[str, str]]:
    """(arguments, environment) that run `command` in `image`.

    Values that the runtime cannot pass are written beside the rank's records, and read from that file in the image.
    Raises SiteError if a value cannot be passed in or written.
    """
    file = attempt.rank_variables(rank)
    started = start(image, command, given, inherited, file, secret)
    if started.file_text:
        with explained(f"{file}: cannot be written"):
            private.write_bytes(file, started.file_text.encode("utf-8", "surrogateescape"))
    return list(started.argv), started.environment


def start(
    image: ContainerExec,
    command: Sequence[str],
    given: Mapping[str, str],
    inherited: Mapping[str, str],
    file: Path,
    secret: SecretVariables = NO_SECRETS,
) -> ContainerLaunch:
    """The launch of `command` in `image`; `file` is for values that need a file, except those of `secret`.

    Raises SiteError if a variable or a bind cannot be passed in.
    """
    try:
        return inside(image, command, given, inherited, str(file), secret)
    except ValueError as error:
        why = f"{error}; correct 'env' or 'container' of the site"
        raise SiteError(f"{image.image}: cannot be started: {why}") from None
