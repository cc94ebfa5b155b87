"""Follows the launcher and its ranks to their end: sends them requests, detects hangs, and ends them if necessary."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable

from orchestrator.base.states import Cause
from orchestrator.job import gather
from orchestrator.job.gather import RankRecords
from orchestrator.job.hang import hung, silent
from orchestrator.job.nccl_network import NetworkWatch
from orchestrator.job.relay import Relay
from orchestrator.network.placement.mapping import Placement
from orchestrator.runs.folder import claim
from orchestrator.runs.folder.records import End, is_done
from orchestrator.runs.folder.run_folder import Attempt, RunFolder
from orchestrator.runs.plan.plan import Plan
from orchestrator.runs.program.what_runs import Program
from orchestrator.runs.shells.starting import starter

POLL_S = 0.25
LOOK_S = 1.0  # between looks that cost a stat or more on a shared file system
FOLLOW_S = 5.0  # how long the other ranks may take to notice a failed one, and a launcher to end its processes
ANSWER_S = 5.0  # how long the wrappers may take to answer where their ranks are
RECORDED_S = 3.0  # how long the records of ranks on other hosts may take to appear here
STARTING_S = 300.0
LISTEN_S = 10.0  # between looks at the newest sign of life of every host
SILENT_S = 60.0  # without a step and without a sign of life of a host: the host or its link is lost
NEVER = float("inf")


class Running:
    """A running launcher. `asked` returns the attempt's end if it has to stop, else None; it is called often."""

    def __init__(
        self,
        plan: Plan,
        run: RunFolder,
        attempt: Attempt,
        placement: Placement,
        program: Program,
        launcher: subprocess.Popen[bytes],
        asked: Callable[[], End | None],
        stop_signal: signal.Signals,
    ) -> None:
        self.plan, self.folder, self.attempt, self.placement = plan, run, attempt, placement
        self.program, self.launcher, self.asked, self.stop_signal = program, launcher, asked, stop_signal
        self.relay = Relay(program, run, attempt)
        self.ranks = RankRecords(attempt)
        self.network = NetworkWatch(run, attempt, wanted=bool(plan.site.node.hcas))
        self.shells = starter(attempt.shells, plan.site, plan.python)
        self.stop: End | None = None
        self.hang: End | None = None
        self.over_s = NEVER  # when the launcher is ended if it still runs
        self.ending = False
        self.stayed: list[int] = []  # the ranks that had not ended by then
        self.signs: tuple[int, ...] = ()
        self.moved_s = time.monotonic()
        self.longest_s = 0.0  # the longest pause that is over
        self.asked_early = False  # whether the ranks were queried in this pause
        self.listened_s = 0.0
        self.metrics_bytes = gather.size(run.metrics)

    def watch(self) -> int | None:
        """Wait until the launcher ends, or end it; its exit code, None if it was ended."""
        looked_s = 0.0
        while self.launcher.poll() is None:
            now_s = time.monotonic()
            self._pass_on(now_s)
            self.ranks.read()
            if any(end.failed for end in self.ranks.ends.values()):
                writing = gather.writes_checkpoint(self.folder, self.attempt)
                self._end_by(now_s + FOLLOW_S + (self.plan.site.kill_after_s if writing else 0.0))
            if now_s >= looked_s + LOOK_S and self.over_s == NEVER:
                looked_s = now_s
                self._look(now_s)
            self._end(now_s)
            time.sleep(POLL_S)
        self._gather()
        self.relay.pass_on(final=True)
        self.network.look()
        return None if self.ending else self.launcher.returncode

    def _look(self, now_s: float) -> None:
        """Give up a launcher that still runs although the training is done, and a program that makes no progress."""
        self.relay.pass_on()
        self.network.look()
        if self.shells:
            self.shells.look()
        if is_done(self.attempt):
            self._end_by(now_s + self.plan.site.kill_after_s + FOLLOW_S)
        idle_s = now_s - self.moved_s
        if (signs := gather.signs_of_life(self.folder, self.attempt)) != self.signs:
            self.signs, self.moved_s = signs, now_s
            self.longest_s, self.asked_early = max(self.longest_s, idle_s), False
            return
        if idle_s > SILENT_S and now_s > self.listened_s + LISTEN_S:
            self.listened_s = now_s
            self.hang = silent(self.placement, gather.silences(self.attempt, self.placement), SILENT_S, self._step())
        if self._begun() and not self.asked_early and idle_s > max(SILENT_S, 2 * self.longest_s):
            self.asked_early = True
            asked = self._hung(idle_s)
            self.hang = self.hang or (asked if asked.cause is Cause.HOST_LOST else None)
        if not self.hang and idle_s > self._patience_s():
            self.hang = self._hung(idle_s)
        if self.hang:  # ranks that still handle signals show their stacks, and may leave a checkpoint
            self.launcher.send_signal(self.stop_signal)
            self._end_by(now_s + FOLLOW_S)

    def _step(self) -> int | None:
        return gather.newest_step(self.folder, self.attempt)

    def _patience_s(self) -> float:
        """The longest pause allowed: before the first metrics, while Python and data load, at least STARTING_S."""
        limit_s = self.plan.hang_timeout_s
        return limit_s if self._begun() else max(limit_s, STARTING_S)

    def _begun(self) -> bool:
        """Whether the training has written metrics, which means that all ranks have met."""
        return self.signs[0] != self.metrics_bytes

    def _pass_on(self, now_s: float) -> None:
        """Pass a request to stop after a checkpoint on to the ranks, once."""
        stop = self.asked()  # called after the request too, since it also writes the supervisor's sign of life
        if stop and not self.stop:
            self.stop = stop
            self.launcher.send_signal(self.stop_signal)
            self._end_by(now_s + self.plan.site.kill_after_s + FOLLOW_S)

    def _end_by(self, at_s: float) -> None:
        self.over_s = min(self.over_s, at_s)

    def _end(self, now_s: float) -> None:
        """End a launcher that is given up: by SIGTERM, so that it ends its processes elsewhere, then by SIGKILL."""
        if now_s > self.over_s and not self.ending:
            self.ending = True
            self.stayed = [rank for rank in range(self.placement.grid.ranks) if rank not in self.ranks.ends]
            self.launcher.send_signal(signal.SIGTERM)
        if now_s > self.over_s + FOLLOW_S:
            os.killpg(self.launcher.pid, signal.SIGKILL)

    def _hung(self, idle_s: float) -> End:
        """Query every rank where it is; the end that follows from the answers."""
        for rank in self.ranks.answered():  # to a query in an earlier pause
            self.attempt.rank_seen(rank).unlink(missing_ok=True)
        self.launcher.send_signal(signal.SIGUSR1)
        until_s = time.monotonic() + ANSWER_S
        while time.monotonic() < until_s and len(self.ranks.answered()) < self.placement.grid.ranks:
            time.sleep(POLL_S)
        time.sleep(POLL_S)  # a stack is written in several pieces
        where = self.ranks.where(range(self.placement.grid.ranks))
        return hung(self.placement, where, idle_s, self._step())

    def _gather(self) -> None:
        """Wait a moment for the records of ranks on other hosts, and until no rank runs any more."""
        until_s = time.monotonic() + RECORDED_S
        while self._incomplete() and time.monotonic() < until_s:
            time.sleep(POLL_S)
        until_s = time.monotonic() + self.plan.site.kill_after_s + FOLLOW_S
        while claim.held(self.attempt) and time.monotonic() < until_s:
            time.sleep(POLL_S)
        self.ranks.read()

    def _incomplete(self) -> bool:
        self.ranks.read()
        return len(self.ranks.ends) < self.placement.grid.ranks
