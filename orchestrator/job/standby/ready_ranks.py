"""A second launcher beside that of an attempt, whose ranks have imported everything and wait for the next attempt."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.json_files import write_json
from torusrun.orchestrator.folder.run_folder import Attempt
from torusrun.orchestrator.job.start.launch import command, environment, launcher
from torusrun.orchestrator.job.start.launch_order import LaunchOrder, ordered
from torusrun.orchestrator.planning.plan import Plan

END_S = 5.0  # how long the launcher may take to end its processes


class ReadyRanks:
    """The ranks that wait while `attempt` runs, on the hosts and with the launch order of that attempt."""

    def __init__(self, plan: Plan, attempt: Attempt) -> None:
        self.plan, self.attempt = plan, attempt
        self.starter = launcher(plan, os.environ)
        self.order, self.placement = ordered(attempt)
        self._begun: subprocess.Popen[bytes] | None = None
        self.messages: Path | None = None  # where the launcher writes, if not to the output of the next attempt

    def begin(self) -> None:
        """Start the launcher, if it can run at the same time as the current one."""
        forget(self.attempt)
        if why := self._impossible():
            print(f"torusrun: no standby: {why}", flush=True)
            return
        self._begun = process.start(
            command(self.plan, self.attempt, self.starter, waits=True),
            own_group=True,
            cwd=self.attempt.folder,
            parent_death=signal.SIGTERM,
            environment=environment(self.plan, self.attempt, self.starter, os.environ),
        )

    def _impossible(self) -> str:
        """Why no ranks can wait beside those at work; '' if they can."""
        if not self.starter.beside:
            return f"{self.starter.program} is not known to support two copies at the same time"
        if self.order.container or self.order.in_image:
            return "ranks in an image do not wait"  # not tried yet: descriptors and mounts of two containers per rank
        return ""

    def fit(self, following: Attempt) -> bool:
        """Whether the ranks can begin in the attempt `following`; if they cannot, they are ended."""
        if self._begun is None:
            return False
        why = "its launcher has ended" if self._begun.poll() is not None else self._why_not(following)
        if why:
            print(f"torusrun: the ranks start without the standby: {why}", flush=True)
            self.end()
        return not why

    def begin_as(self, following: Attempt) -> subprocess.Popen[bytes]:
        """Have the ranks begin in the attempt `following`, which they fit; their launcher."""
        write_json(self.attempt.standby, {"attempt": following.number})
        assert self._begun
        self._begun.send_signal(signal.SIGUSR1)
        return self._begun

    def end(self) -> None:
        """End the launcher and its ranks."""
        if self._begun is None:
            return
        launcher, self._begun = self._begun, None
        launcher.terminate()
        try:
            launcher.wait(END_S)
        except subprocess.TimeoutExpired:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(launcher.pid, signal.SIGKILL)
            launcher.wait()

    def _why_not(self, following: Attempt) -> str:
        """Why the waiting ranks cannot be those of the attempt `following`; '' if they can."""
        order, placement = ordered(following)
        waiting = sum(self.attempt.rank_standby(slot.rank).exists() for slot in self.placement.slots)
        if waiting < len(self.placement.slots):
            return f"{waiting} of {len(self.placement.slots)} ranks are ready"
        return why_not(self.order, order, self.placement.hosts, placement.hosts)


def why_not(before: LaunchOrder, now: LaunchOrder, hosts_before: Collection[str], hosts: Collection[str]) -> str:
    """Why ranks that wait by one launch order cannot begin by another one; '' if they can."""
    if {*hosts_before} != {*hosts}:
        return "the attempt runs on other hosts"
    if not (before.program.standby or before.program.elastic) or _without_attempt(before) != _without_attempt(now):
        return "the attempt starts another program, or starts it in another way"
    return ""


def _without_attempt(order: LaunchOrder) -> LaunchOrder:
    """The order without the last argument of its program: the configuration of its attempt."""
    return replace(order, program=replace(order.program, argv=order.program.argv[:-1]))


def forget(attempt: Attempt) -> None:
    """Remove the records of an earlier standby: the scheduler may have begun the job again."""
    attempt.standby.unlink(missing_ok=True)
    for path in attempt.ranks.glob("*.standby.json"):
        path.unlink(missing_ok=True)
