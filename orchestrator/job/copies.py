"""Removes the copies of a run's state from the memory of a job's hosts, once no attempt of the job continues from them.

The ranks of a training that is done have removed their own. A host that cannot be reached in time keeps its copies
until the next run of this user there, or until it starts anew.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Collection, Sequence

from orchestrator import schedulers
from orchestrator.base import process
from orchestrator.base.errors import SiteError, TorusrunError
from orchestrator.folder import claim
from orchestrator.folder.records import is_done
from orchestrator.folder.run_folder import RunFolder
from orchestrator.network.hosts.same_host import same_host
from orchestrator.planning.plan import Plan
from orchestrator.planning.plan_files import read_attempt
from training.checkpoint import node_memory

LIMIT_S = 15.0  # for all hosts together


def remove(run: RunFolder, attempt: int, lost: Collection[str] = ()) -> None:
    """Remove the copies of a run whose newest attempt this is: here, and on the job's other hosts but those `lost`.

    Nothing is done after a training that is done. That this host has none says nothing about the others: its own may
    have had no room, or it may have replaced a lost host.
    """
    if is_done(run.attempt(attempt)):
        return
    with contextlib.suppress(TorusrunError):  # a newer attempt has copies of its own
        claim.check(run, attempt)
        _remove(run, read_attempt(run, attempt).plan, lost)


def _remove(run: RunFolder, plan: Plan, lost: Collection[str]) -> None:
    folder = node_memory.of_run(plan.run_id, run.checkpoints)
    if plan.run.command or not plan.run.train.checkpoints.memory:
        return
    node_memory.remove(folder)
    here, scheduler = socket.gethostname(), schedulers.get(plan.site.scheduler)
    reach, hosts = scheduler.reach.remote_command, dict.fromkeys(scheduler.hosts(os.environ, here))
    others = [host for host in hosts if host not in lost and not same_host(host, here)]
    if not others or not reach:
        return
    own = [f"PYTHONPATH={os.environ['PYTHONPATH']}"] if "PYTHONPATH" in os.environ else []
    line = shlex.join(["env", *own, *process.module(plan.python, "training.checkpoint.node_memory", folder)])
    started = {host: found for host in others if (found := _started(reach(host, line)))}
    until_s = time.monotonic() + LIMIT_S
    left = [host for host in others if host not in started or not _ended(started[host], until_s)]
    if left:
        said = f"copies of the state may be left in the memory of {', '.join(left)}"
        print(f"torusrun: {said}: {folder}", file=sys.stderr, flush=True)


def _started(command: Sequence[str]) -> subprocess.Popen[bytes] | None:
    with contextlib.suppress(SiteError):
        return process.start(command, environment=os.environ, own_group=True, parent_death=signal.SIGTERM)
    return None


def _ended(child: subprocess.Popen[bytes], until_s: float) -> bool:
    """Whether it removed what it should; it is killed after its time."""
    with contextlib.suppress(subprocess.TimeoutExpired):
        return child.wait(max(until_s - time.monotonic(), 0.0)) == 0
    with contextlib.suppress(ProcessLookupError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()
    return False
