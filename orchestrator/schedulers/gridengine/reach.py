"""Grid Engine's way to the hosts of a job: qrsh -inherit."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence

from orchestrator.base import process
from orchestrator.schedulers.reach import Reach


def shell(job_id: str, host: str, argv: Sequence[str], *, terminal: bool) -> tuple[list[str], dict[str, str]]:
    number, _, task = job_id.partition(".")
    variables = {"JOB_ID": number, "SGE_TASK_ID": task or "undefined"}
    how = "terminal" if terminal else "command"
    between = process.module(sys.executable, "orchestrator.schedulers.gridengine.shell", how, host)
    return [*between, shlex.join(argv)], variables


def remote(host: str, command: str) -> list[str]:
    return ["qrsh", "-inherit", "-nostdin", host, command]  # which a shell over there reads


# qrsh -inherit takes -pty y, and yet there is no terminal over there.
REACH = Reach(shell, remote, has_terminal=False)
