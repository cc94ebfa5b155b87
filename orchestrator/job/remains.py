"""Ends the processes that the command of an attempt leaves on this machine. On a cluster its scheduler does that."""

from __future__ import annotations

import contextlib
import os
import signal
import time

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import proc
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.plan.plan import Plan

GRACE_S = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 2.0))  # to end by each signal
POLL_S = 0.1


def end_remains(attempt: Attempt, plan: Plan) -> bool:
    """End the processes with the environment of the attempt's ranks, such as daemons; whether there were any.

    Ranks must have ended. A process with a terminal stays: it is a user's shell. So does the writer of a checkpoint,
    which leaves out that part of its environment.
    """
    alone = plan.run.command and schedulers.get(plan.site.scheduler).traits.one_machine
    if not alone or not (found := _remains(attempt)):
        return False
    for number, wait_s in GRACE_S:
        for pid in (left := _remains(attempt)):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        until_s = time.monotonic() + wait_s
        while left and time.monotonic() < until_s and _remains(attempt):
            time.sleep(POLL_S)
    pids = ", ".join(map(str, found))
    print(f"torusrun: attempt {attempt.number} left processes, which were ended: {pids}", flush=True)
    return True


def _remains(attempt: Attempt) -> list[int]:
    mark = f"TORUSRUN_HEARTBEAT={attempt.heartbeat}\0"  # every process of a command inherits it
    return [pid for pid in proc.with_in_environment(mark) if not proc.has_terminal(pid)]
