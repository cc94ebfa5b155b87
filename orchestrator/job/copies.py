"""Removes the copies of a run's state from the memory of a job's hosts, once no attempt of the job continues from them.

The ranks of a training that is done have removed their own. A host that cannot be reached in time keeps its copies
until the next run of this user on it, or until it starts anew.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import sys
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.place.hosts.same_host import without
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.records import is_done
from torusrun.orchestrator.run.folder.run_folder import RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import read_attempt
from torusrun.orchestrator.schedulers import interface
from torusrun.training.checkpoint import node_memory
from torusrun.training.counted import first_of

LIMIT_S = 15.0  # for all hosts together
MOST_AT_ONCE = 64  # remote commands


def remove(run: RunFolder, attempt: int, lost: Collection[str] = ()) -> None:
    """Remove the copies of a run whose newest attempt this is: here, and on the job's other hosts but those `lost`.

    Nothing is done after a training that is done. That this host has no copies says nothing about the others: it may
    have had no room, or may have replaced a lost host.
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
    scheduler = schedulers.get(plan.site.scheduler)
    reach, hosts = scheduler.reach.remote_command, interface.hosts_of(scheduler)
    others = without(hosts, [*lost, interface.this_host_of(scheduler, hosts)])
    if not others or not reach:
        return
    own = [f"PYTHONPATH={os.environ['PYTHONPATH']}"] if "PYTHONPATH" in os.environ else []
    line = shlex.join(["env", *own, *process.module(plan.python, "torusrun.training.checkpoint.node_memory", folder)])
    if left := _not_reached({host: reach(host, line) for host in others}):
        where = f"the memory of {first_of(left)}"
        print(f"torusrun: copies of the state may be left in {where}: {folder}", file=sys.stderr, flush=True)


def _not_reached(commands: Mapping[str, Sequence[str]]) -> list[str]:
    """Run the command of each host, MOST_AT_ONCE at a time; the hosts whose command failed, or had no time to end."""
    until_s = time.monotonic() + LIMIT_S

    def fails(command: Sequence[str]) -> bool:
        left_s = until_s - time.monotonic()
        with contextlib.suppress(SiteError):
            return left_s <= 0 or process.run(command, timeout_s=left_s, environment=os.environ).exit_code != 0
        return True

    with ThreadPoolExecutor(MOST_AT_ONCE) as pool:
        return [host for host, failed in zip(commands, pool.map(fails, commands.values()), strict=True) if failed]
