"""Lets an MPI without its own support for the scheduler reach the other hosts of a job through it.

This module, run with SCHEDULER HOST COMMAND..., is the launcher's remote shell: as with ssh, the words of COMMAND are
one command for the shell of the other host.
"""

from __future__ import annotations

import os
import socket
import sys

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.schedulers.interface import Scheduler

FAILED = "torusrun: the launcher cannot start its daemon on "  # the rest is the cause of the launcher's own errors


def main() -> None:
    name, host, *words = sys.argv[1:]
    try:
        argv = command(schedulers.get(name), host, " ".join(words))
        os.execvp(argv[0], argv)
    except TorusrunError as error:
        raise SystemExit(f"{FAILED}{host}: {error}") from None
    except OSError as error:
        raise SystemExit(
            f"{FAILED}{host}: {argv[0]} cannot be run on {socket.gethostname()} ({error.strerror}): put the folder of "
            f"{name}'s commands on the job's PATH, or set remote_shell: ssh if the site has ssh between its nodes"
        ) from None


def command(scheduler: Scheduler, host: str, line: str) -> list[str]:
    """Inside a job: the command that runs `line` in a shell of another host. Raises SiteError if there is none."""
    if scheduler.reach.remote_command is None:
        raise SiteError(f"{scheduler.name} has no remote shell of its own")
    return scheduler.reach.remote_command(host, line)


def agent(scheduler: Scheduler, python: str) -> tuple[str, ...]:
    """The words of the remote shell that uses `scheduler`."""
    module = "torusrun.orchestrator.schedulers.remote_shell"
    return tuple(process.module(python, module, schedulers.reference(scheduler)))


if __name__ == "__main__":
    main()
