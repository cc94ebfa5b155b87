"""Runs a command, or a shell, beside a rank: on its host, in its image, with its variables and in its folder.

`orchestrator.job.ranks.beside_rank ATTEMPT_FOLDER RANK [COMMAND...]`, started on the rank's host. The rank's variables
are computed again, by the function that the wrapper uses. Inherited variables are read from the rank's wrapper or, in a
held allocation, from the keeper.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base.environment import safe, which
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.base.json_files import read_object, required
from torusrun.orchestrator.base.private import write_bytes
from torusrun.orchestrator.images import pyxis
from torusrun.orchestrator.job.image.contained import start
from torusrun.orchestrator.job.ranks.meeting import meeting_of
from torusrun.orchestrator.job.staging.order import StagedHere
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, Rank, ordered, secrets_of
from torusrun.orchestrator.run.folder import allocation
from torusrun.orchestrator.run.folder.run_folder import Attempt

SHELL = ("/bin/sh", "-c", "if command -v bash > /dev/null; then exec bash; else exec sh; fi")


def main() -> None:
    folder, rank, *command = sys.argv[1:]
    try:
        argv, environment, directory = beside(Attempt(Path(folder)), int(rank), command or list(SHELL))
        os.chdir(directory)
        os.execvpe(argv[0], argv, environment)
    except TorusrunError as error:
        print(f"torusrun: {error}", file=sys.stderr)
        sys.exit(error.exit_code)
    except OSError as error:
        sys.exit(f"torusrun: {error.filename}: cannot be started: {error.strerror}")


def beside(attempt: Attempt, rank: int, command: list[str]) -> tuple[list[str], dict[str, str], str]:
    """(arguments, environment, folder) of `command` beside a rank. Raises SiteError if the rank has ended."""
    order, placement = ordered(attempt)
    inherited = _inherited(attempt, rank)
    of_rank = Rank(rank, attempt, order, placement, staged=_staged(order, inherited))
    own = of_rank.variables(_meets(of_rank), inherited)
    if of_rank.role.name:
        from torusrun.orchestrator.job.ranks.roles import Roles

        own = {**Roles(of_rank, None).filled(replace(of_rank.role.program, environment=own)).environment}
    secret = secrets_of(attempt, order.secrets)
    own["TERM"] = os.environ.get("TERM", "dumb")  # of this terminal; a job has none
    if not (image := of_rank.container):
        directory = of_rank.role.program.directory or str(attempt.folder)
        if order.in_image:
            command, directory = _joined(attempt, rank, directory, command), "/"
        return command, safe({**inherited, **own, **secret.values}), directory
    file = attempt.rank_variables(rank)
    started = start(image, command, own, inherited, file, secret)
    if started.file_text and not file.exists():
        write_bytes(file, started.file_text.encode("utf-8", "surrogateescape"))
    return list(started.argv), safe(started.environment), str(attempt.folder)


def _staged(order: LaunchOrder, inherited: Mapping[str, str]) -> StagedHere:
    if not order.stage:
        return StagedHere()
    from torusrun.orchestrator.job.staging.of_rank import read_staged

    return read_staged(order.stage, inherited)


def _joined(attempt: Attempt, rank: int, directory: str, command: list[str]) -> list[str]:
    """The command in the container of a rank that Pyxis started. Raises SiteError without such a rank, or nsenter."""
    if allocation.keeper_state(attempt):
        raise SiteError("Pyxis has no container on the nodes of a held allocation: `shell` needs a run at work in it")
    if (nsenter := which("nsenter")) is None:
        raise SiteError(f"nsenter (util-linux) is not found on {socket.gethostname()}: it joins a rank's container")
    return pyxis.beside(nsenter, _wrapper(attempt, rank), directory, command)


def _meets(rank: Rank) -> tuple[str, int] | None:
    """The address and port at which the ranks of a command meet, as the first recorded them; None for our training."""
    record = read_object(meeting_of(rank.attempt, rank.role.name if rank.role.service else "")) or {}
    if type(record.get("address")) is str and type(record.get("port")) is int:
        return record["address"], record["port"]
    return None


def _inherited(attempt: Attempt, rank: int) -> dict[str, str]:
    """The environment of the rank's wrapper, or of the keeper if this is the attempt of a held allocation."""
    if keeper := allocation.keeper_state(attempt):
        here = keeper.host == socket.gethostname()
        return _environment_of(keeper.pid, "the keeper of the held allocation") if here else dict(os.environ)
    if attempt.rank_end(rank).exists():
        raise SiteError(f"rank {rank} has ended")
    return _environment_of(_wrapper(attempt, rank), f"rank {rank}")


def _wrapper(attempt: Attempt, rank: int) -> int:
    """The process of a rank's wrapper. Raises SiteError if the rank has not started."""
    path = attempt.rank_start(rank)
    if (record := read_object(path)) is None:
        raise SiteError(f"rank {rank} has not started yet: try again")
    return int(required(path, record, "wrapper", int))


def _environment_of(pid: int, whose: str) -> dict[str, str]:
    try:
        content = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        raise SiteError(f"{whose} is not at work on {socket.gethostname()} any more") from None
    words = content.decode("utf-8", "surrogateescape").split("\0")
    return dict(word.split("=", 1) for word in words if "=" in word)


if __name__ == "__main__":
    main()
