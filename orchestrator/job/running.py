"""Follows the launcher and its ranks to their end: sends them requests, detects hangs, and ends them if necessary."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from collections.abc import Callable
from functools import partial

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.job import gather
from torusrun.orchestrator.job.earlier import end_remains
from torusrun.orchestrator.job.gather import RankRecords, lost_hosts
from torusrun.orchestrator.job.hangs.hang_watch import HangWatch, SlowWatch
from torusrun.orchestrator.job.relay import NetworkWatch, Relay
from torusrun.orchestrator.job.services import Services, sources
from torusrun.orchestrator.job.shell_requests import starter
from torusrun.orchestrator.place.placement.mapping import Placement
from torusrun.orchestrator.run.folder import claim
from torusrun.orchestrator.run.folder.records import End, is_done
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.program.what_runs import Program

POLL_S = 0.25
SOON_S = 0.05  # between looks for what ends in a moment: the next attempt waits for it
LOOK_S = 1.0  # between looks that cost a stat or more on a shared file system
FOLLOW_S = 5.0  # how long the other ranks may take to notice a failed rank, and a launcher to end its processes
FOLLOW_AT_START_S = 1.0  # the same before the first step: they may wait for the failed rank, and have nothing to save
RECORDED_S = 3.0  # how long the records of ranks on other hosts may take to appear here
NEVER = float("inf")


class Running:
    """A running launcher."""

    def __init__(
        self,
        plan: Plan,
        run: RunFolder,
        attempt: Attempt,
        placement: Placement,
        *,
        program: Program,
        launcher: subprocess.Popen[bytes],
        asked: Callable[[], End | None],  # the attempt's end if it has to stop; called often
        stop_signal: signal.Signals,
        here: str = "",  # the host of this process
    ) -> None:
        self.here = here
        self.plan, self.folder, self.attempt, self.placement = plan, run, attempt, placement
        self.program, self.launcher, self.asked, self.stop_signal = program, launcher, asked, stop_signal
        services = sources(plan.run, attempt, placement) if plan.run.roles else ()
        self.relay = Relay(program, run, attempt, services=services)
        self.ranks = RankRecords(attempt)
        self.network = NetworkWatch(run, attempt, wanted=bool(plan.site.node.hcas))
        self.services = Services(plan, attempt, placement)
        self.shells = starter(attempt.shells, plan.site, plan.python)
        self.stop: End | None = None
        self.hang: End | None = None
        self.over_s = NEVER  # when the launcher is ended if it still runs
        self.ending = False
        self.stayed: list[int] = []  # the ranks that had not ended by then
        self.slow = None if plan.run.command else SlowWatch(attempt, placement)  # commands report no times of steps
        self.hangs = None if plan.run.roles else self._hang_watch()

    def watch(self) -> int | None:
        """Wait until the launcher ends, or end it; its exit code, None if it was ended."""
        looked_s = 0.0
        while self.launcher.poll() is None:
            now_s = time.monotonic()
            self._pass_on(now_s)
            self.ranks.read()
            self.services.look(self.ranks.ends, stop=self.stop is not None)
            if any(end.failed for end in self.ranks.ends.values()):
                self._end_by(now_s + self._follow_s())
            if now_s >= looked_s + LOOK_S and self.over_s == NEVER:
                looked_s = now_s
                self._look(now_s)
            self._end(time.monotonic())  # a look may have read a slow file system for seconds
            time.sleep(POLL_S if self.over_s == NEVER else SOON_S)
        self._gather()
        self.relay.pass_on(final=True)
        self.network.look()
        return None if self.ending else self.launcher.returncode

    def _look(self, now_s: float) -> None:
        """Give up a launcher that still runs although the main role has ended, and a launcher without progress."""
        self.relay.pass_on()
        self.network.look()
        if self.slow:
            self.slow.look(now_s)
        if self.shells:
            self.shells.look()
        judged = self.services.judges <= self.ranks.ends.keys()  # else the job's time is the limit
        if self.services.main_ended(self.ranks.ends) or (is_done(self.attempt) and judged):
            if judged:
                self._end_by(time.monotonic() + self._stop_s)
        elif hang := self._hung(now_s):
            self.hang = hang
            self.launcher.send_signal(self.stop_signal)  # ranks that still handle it may leave a checkpoint
            self._end_by(time.monotonic() + self._follow_s())

    def _follow_s(self) -> float:
        """How long the ranks may take to end by themselves, the time of a stop longer if they write a checkpoint."""
        if gather.writes_checkpoint(self.folder, self.attempt):
            return FOLLOW_S + self.plan.site.kill_after_s
        return FOLLOW_S if self._stepped() else FOLLOW_AT_START_S

    def _stepped(self) -> bool:
        """Whether the ranks may have taken a step: only our training says when it does."""
        if not self.program.records_done:
            return True
        with contextlib.suppress(SiteError):
            return gather.newest_step(self.folder, self.attempt) is not None
        return True

    def _pass_on(self, now_s: float) -> None:
        """Pass a request to stop after a checkpoint on to the ranks, once."""
        stop = self.asked()  # called after the request too, since it also writes the supervisor's sign of life
        if stop and not self.stop:
            self.stop = stop
            self.launcher.send_signal(self.stop_signal)
            self._end_by(now_s + self._stop_s)

    @property
    def _stop_s(self) -> float:
        """How long the ranks of all roles may take to stop, one role after the other."""
        return self.plan.site.kill_after_s + self.services.longest_s + FOLLOW_S

    def _hung(self, now_s: float) -> End | None:
        """The end by a hang. The main role may wait for services first, which is none."""
        if self.hangs is None:
            if not self.attempt.rank_start(0).exists():
                return None
            self.hangs = self._hang_watch()
        return self.hangs.look(now_s)

    def _hang_watch(self) -> HangWatch:
        return HangWatch(
            self.plan, self.folder, self.attempt, self.placement, partial(self.launcher.send_signal, signal.SIGUSR1),
            lambda: self.relay.of_services_bytes, self.services.awaited,
        )  # fmt: skip

    def _end_by(self, at_s: float) -> None:
        self.over_s = min(self.over_s, at_s)

    def _end(self, now_s: float) -> None:
        """End a launcher that is given up: by SIGTERM, so that it ends its processes elsewhere, then by SIGKILL."""
        if now_s > self.over_s and not self.ending:
            self.ending = True
            self.stayed = [slot.rank for slot in self.placement.slots if slot.rank not in self.ranks.ends]
            self.over_s = now_s  # SIGKILL follows by the time of SIGTERM
            self.launcher.send_signal(signal.SIGTERM)
        if now_s > self.over_s + FOLLOW_S:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.launcher.pid, signal.SIGKILL)

    def _gather(self) -> None:
        """Wait a moment for the records of ranks on other hosts that live, and until no rank runs any more."""
        until_s, lost = time.monotonic() + RECORDED_S, self._lost()
        while (missing := self._missing()) and time.monotonic() < until_s:
            if missing <= lost and (self.hang or any(not end.good for end in self.ranks.ends.values())):
                break  # the end names these hosts, whatever their ranks recorded before
            time.sleep(SOON_S)
        if not self._missing():  # daemons may hold the lock, too
            end_remains(self.attempt, self.plan)
        until_s = time.monotonic() + self.plan.site.kill_after_s + FOLLOW_S
        while claim.held(self.attempt) and time.monotonic() < until_s:
            time.sleep(SOON_S)
        end_remains(self.attempt, self.plan)
        self.ranks.read()

    def _missing(self) -> set[int]:
        """The ranks without a record of their end."""
        self.ranks.read()
        return {slot.rank for slot in self.placement.slots} - {*self.ranks.ends}

    def _lost(self) -> set[int]:
        """The ranks on hosts that are silent, or that the launcher lost."""
        silent = self.hang.hosts if self.hang and self.hang.cause is Cause.HOST_LOST else ()
        hosts = {*silent, *lost_hosts(self.ranks.launcher_words(), self.placement, self.here)}
        return {slot.rank for slot in self.placement.slots if slot.host in hosts}
