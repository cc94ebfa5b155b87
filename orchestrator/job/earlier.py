"""Waits for the ranks of earlier attempts, since two must not train at once, and ends what a command left here."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import proc
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan

POLL_S = 0.1
EARLIER_S = 60.0  # how long an earlier attempt may take to end, in addition to kill_after of its ranks
GRACE_S = ((signal.SIGTERM, 5.0), (signal.SIGKILL, 2.0))  # to end by each signal


def wait_for_earlier(run: RunFolder, number: int, kill_after_s: float, asked: Callable[[], End | None]) -> End | None:
    """Wait until no rank of an earlier attempt runs: each ends once it sees this attempt. None if all have ended.

    The same holds for ranks of an earlier start of this attempt, if the scheduler started its job again. On this host,
    a stopped process continues, and a process that does not end in time is killed. `asked` returns the end of this
    attempt if it has to stop.
    """
    until_s = time.monotonic() + kill_after_s + EARLIER_S
    for earlier in map(run.attempt, range(1, number + 1)):
        if claim.held(earlier):
            claim.wake(earlier)
        while claim.held(earlier):
            if stop := asked():
                return stop
            if time.monotonic() > until_s and not claim.end_holders(earlier, grace_s=0.0):
                who = claim.holders(earlier)
                return ended(How.STILL_AT_WORK, earlier=earlier.number, path=earlier.alive, who=who)
            time.sleep(POLL_S)
    return None


def end_remains(attempt: Attempt, plan: Plan) -> bool:
    """End the processes with the environment of the attempt's ranks, such as daemons; whether any were left.

    Ranks must have ended. A process with a terminal stays: it is a user's shell. So does the writer of a checkpoint,
    which leaves out that part of its environment.
    """
    alone = plan.run.command and schedulers.get(plan.site.scheduler).traits.one_machine
    if not alone or not (remains := _remains(attempt)):
        return False
    for number, wait_s in GRACE_S:
        for pid in (left := _remains(attempt)):
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        until_s = time.monotonic() + wait_s
        while left and time.monotonic() < until_s and _remains(attempt):
            time.sleep(POLL_S)
    pids = ", ".join(map(str, remains))
    print(f"torusrun: attempt {attempt.number} left processes, which were ended: {pids}", flush=True)
    return True


def _remains(attempt: Attempt) -> list[int]:
    mark = f"TORUSRUN_HEARTBEAT={attempt.heartbeat}\0"  # every process of a command inherits it
    return [pid for pid in proc.with_in_environment(mark) if not proc.has_terminal(pid)]
