"""How programs get to the hosts of a job."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reach:
    """The scheduler's own ways to the hosts of a job; None for one that it does not have.

    `shell_command(job_id, host, argv, terminal)` is for a login node: it runs `argv` on a host of a running job,
    `terminal` says whether on the user's terminal. The others are for the job itself. `remote_command(host, command)`
    runs the shell `command` on another of its hosts, and lasts as long. `broadcast_commands(environment, ready,
    source, destination)` copy a file to all its nodes after `ready` has run once on each.
    """

    shell_command: Callable[[str, str, Sequence[str], bool], list[str]] | None = None
    remote_command: Callable[[str, str], list[str]] | None = None
    broadcast_commands: Callable[[Mapping[str, str], Sequence[str], Path, Path], list[list[str]]] | None = None
    for_every_mpi: bool = False  # whether mpirun needs `remote_command` unless the site says ssh

    @property
    def from_inside(self) -> bool:
        """Whether the job itself has to start a user's shell (orchestrator.runs.shells)."""
        return self.shell_command is None and self.remote_command is not None


def ssh(host: str, argv: Sequence[str], *, terminal: bool) -> list[str]:
    """What runs `argv` on another host where there is ssh, whose shell over there reads one line."""
    return ["ssh", *(["-t"] if terminal else []), "--", host, shlex.join(argv)]
