"""How programs reach the hosts of a job."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Reach:
    """The scheduler's own ways to reach the hosts of a job; None for one that it lacks.

    `shell_command(job_id, host, argv, terminal)` is for a login node: it runs `argv` on a host of a running job, on
    the user's terminal if `terminal`. The others are for the job itself. `remote_command(host, command)` runs the
    shell `command` on another of its hosts, and ends with it. `broadcast_commands(environment, ready, source,
    destination)` copy a file to all its nodes after `ready` has run once on each.
    """

    shell_command: Callable[[str, str, Sequence[str], bool], list[str]] | None = None
    remote_command: Callable[[str, str], list[str]] | None = None
    broadcast_commands: Callable[[Mapping[str, str], Sequence[str], Path, Path], list[list[str]]] | None = None
    for_every_mpi: bool = False  # whether mpirun needs `remote_command` unless the site says ssh

    @property
    def from_inside(self) -> bool:
        """Whether the job itself must start a user's shell (orchestrator.runs.shells)."""
        return self.shell_command is None and self.remote_command is not None


def ssh(host: str, argv: Sequence[str], *, terminal: bool) -> list[str]:
    """The command that runs `argv` on another host by ssh, as one line for the shell of that host."""
    return ["ssh", *(["-t"] if terminal else []), "--", host, shlex.join(argv)]
