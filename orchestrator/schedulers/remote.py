"""How Open MPI reaches the other hosts of a job through the scheduler, where it has no support for it of its own.

This file, run with SCHEDULER HOST COMMAND..., is mpirun's "remote shell agent": as with ssh, the
words of COMMAND are one command for the shell over there.
"""

from __future__ import annotations

import os
import socket
import sys
from pathlib import Path

from orchestrator import schedulers
from orchestrator.errors import TorusrunError
from orchestrator.schedulers.seam import Scheduler


def main() -> None:
    name, host, *words = sys.argv[1:]
    try:
        argv = schedulers.get(name).remote_command(host, " ".join(words))
        os.execvp(argv[0], argv)
    except TorusrunError as error:
        raise SystemExit(f"torusrun: {error}") from None
    except OSError as error:
        problem = f"{argv[0]} cannot be run on {socket.gethostname()} ({error.strerror})"
        raise SystemExit(
            f"torusrun: {problem}, and mpirun's daemon on {host} starts by it: put the folder of {name}'s commands on "
            "the job's PATH, or set remote_shell: ssh where the site has ssh between its nodes"
        ) from None


def mpirun_words(scheduler: Scheduler, python: str) -> list[str]:
    """What makes mpirun start its daemons through `scheduler`.

    Only the first host has the means, so it starts all of them, and signals and output go to each of them directly:
    Open MPI 4.1 says itself that its default routes fail otherwise. A daemon has to stay in the session that it was
    started in: PBS ends what is left of a task whose first process has ended, at times before the daemon is at work.
    """
    # mpirun cuts these words at every blank, so this is the file and not `process.module`.
    agent = f"{python} {Path(__file__)} {scheduler.name}"
    direct = ["--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "routed", "direct", "--leave-session-attached"]
    return ["--mca", "plm_rsh_agent", agent, *direct]


if __name__ == "__main__":
    main()
