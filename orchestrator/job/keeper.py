"""The keeper, which works in the job of a held allocation: it checks that ranks start, then starts attempts of runs.

One attempt runs at a time, by the script that its own job would run. The keeper ends when its user asks for it, when
its time is over, or when no attempt has come for the idle limit. What an attempt left in the memory of the hosts stays
for the next one of its run, until another run begins or the keeper ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import time
from collections import deque
from pathlib import Path

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job import around, copies
from torusrun.orchestrator.job.load.monitor import of_node
from torusrun.orchestrator.job.recorded import recorded
from torusrun.orchestrator.job.start.launch_order import ordered
from torusrun.orchestrator.job.stop_requests import StopRequests
from torusrun.orchestrator.job.supervise import Supervisor
from torusrun.orchestrator.job.wire.starting import starter
from torusrun.orchestrator.run.bad_nodes.noted import note
from torusrun.orchestrator.run.folder import allocation, ledger
from torusrun.orchestrator.run.folder.allocation import AskedOf, KeeperState
from torusrun.orchestrator.run.folder.end_words import ended
from torusrun.orchestrator.run.folder.events import CancelRequested, Ended, Submitted
from torusrun.orchestrator.run.folder.how_ended import How
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.training.counted import counted

LOOK_S = 0.1
WAITING_LOOK_S = 1.0  # between looks for cancellations of waiting attempts
LONGER_S = 20.0  # an attempt that has not ended this long after kill_after is killed


def keep(run: RunFolder, number: int, job: str) -> End:
    """Check that ranks start in the allocation, keep it until it ends, and record its end."""
    attempt, began_s = run.attempt(number), time.time()

    def work() -> End:
        supervisor = Supervisor(run, attempt, [])
        checked = supervisor.run(job)
        if checked.state is not State.COMPLETED:
            return checked
        plan = supervisor.plan
        with of_node(attempt, *ordered(attempt), supervisor.here, cores=os.sched_getaffinity(0)):
            keeper = Keeper(run, attempt, plan, allocation.idle_limit_s(run), began_s + plan.run.time_s)
            afterwards.callback(keeper.remove_copies)
            return keeper.keep()

    with contextlib.ExitStack() as afterwards:  # the end is recorded first: hosts that do not answer take time
        return recorded(run, attempt, work)


class Keeper:
    """Starts attempts in its allocation, one after the other, until it ends. Times are those of time.time()."""

    def __init__(self, run: RunFolder, attempt: Attempt, plan: Plan, idle_s: float, until_s: float) -> None:
        self.folder, self.attempt, self.plan = run, attempt, plan
        self.idle_s, self.until_s = idle_s, until_s
        self.shells = starter(attempt.shells, plan.site, plan.python)
        self.waiting: deque[AskedOf] = deque()
        self.busy: AskedOf | None = None
        self.newest: AskedOf | None = None  # the attempt that was started last
        self.child: subprocess.Popen[bytes] | None = None
        self.since_s = time.time()
        self.attempts = 0
        self.requests = StopRequests(run, attempt)
        self.closing = ""  # why no more requests are taken; earlier ones still run, if there is time
        self.looked_s = 0.0

    def keep(self) -> End:
        """Start the requested attempts until the allocation ends; return its end."""
        print(f"torusrun: held; {self.idle_s:g} s without an attempt end the allocation", flush=True)
        self._tell()
        while True:
            if stop := self.requests.look():
                return self._stop(stop)
            if not self.closing:
                self._take(self.attempt.inbox)
            self._look_at_waiting()
            if self.shells:
                self.shells.look()
            if self.child and self.child.poll() is not None:
                self._finish()
            if not self.child and self.waiting:
                self._follow(self.waiting[0])
            if not self.child and not self.closing and (why := self._over()):
                self.closing = why
                self._close()
            if not self.child and self.closing and not (self.waiting and self._left()):
                self._refuse_waiting(self.closing)
                return ended(How.GIVEN_BACK, why=self.closing, attempts=counted(self.attempts, "attempt"))
            time.sleep(LOOK_S)

    def _over(self) -> str:
        """Why an allocation without a running attempt is given back now; '' if it is not."""
        if not self._left():
            return "its time is over"
        if time.time() - self.since_s > self.idle_s:
            return f"no attempt came for {self.idle_s:g} s"
        return ""

    def _left(self) -> bool:
        """Whether an attempt that began now would have time to run before it has to stop."""
        return time.time() < self.until_s - self.plan.site.stop_before_s

    def _stop(self, stop: End) -> End:
        """End the running attempt, the waiting ones, and then the allocation."""
        self._close()
        self._refuse_waiting(stop.reason)
        if self.busy and self.child:
            if stop.certain:  # cancelled by its user: so is the attempt
                ledger.append(self.busy.run.ledger, CancelRequested(self.busy.attempt.number))
            else:
                self._signal(signal.SIGTERM)
            until_s = time.monotonic() + self.plan.site.kill_after_s + LONGER_S
            while self.child.poll() is None and time.monotonic() < until_s:
                self.requests.look()
                time.sleep(LOOK_S)
            if self.child.poll() is None:
                self._signal(signal.SIGKILL)
                self.child.wait()
            self._finish(certain=stop.certain)
        return stop

    def _take(self, inbox: Path) -> None:
        for request in allocation.take(inbox):
            if not request.kill:
                print(f"torusrun: attempt {request.attempt.number} of {request.run.run_id} came", flush=True)
                self._note_job(request)
                self.waiting.append(request)
                self._tell()
            elif self.busy and request.attempt == self.busy.attempt:
                self._signal(signal.SIGKILL)

    def _note_job(self, request: AskedOf) -> None:
        """Write the job of an attempt into its ledger if its client did not, for example since it was killed."""
        number, job = request.attempt.number, allocation.job(self.folder)
        with contextlib.suppress(SiteError):
            if job and not ledger.last(ledger.events(request.run.ledger), Submitted, number):
                noted = Submitted(number, job, self.plan.site.scheduler, looked_up=True)
                ledger.append(request.run.ledger, noted)

    def _look_at_waiting(self) -> None:
        """End attempts that were cancelled while they waited, and start one if it can start now."""
        if not self.waiting or time.monotonic() < self.looked_s + WAITING_LOOK_S:
            return
        self.looked_s = time.monotonic()
        for request in list(self.waiting):
            self._follow(request)

    def _follow(self, request: AskedOf) -> None:
        """Start a waiting attempt, end it, or let it wait."""
        if ledger.last(ledger.events(request.run.ledger), CancelRequested, request.attempt.number):
            self.waiting.remove(request)
            self._end_unstarted(request, ended(How.CANCELLED_BEFORE))
        elif not self.child and self._left():
            self.waiting.remove(request)
            self._start(request)

    def _start(self, request: AskedOf) -> None:
        """Start an attempt by the script that its own job would run."""
        own = {name: value for name, value in os.environ.items() if name not in self.plan.run.env}
        environment = {**own, allocation.VARIABLE: str(self.attempt.folder)}
        self.since_s = time.time()
        if self.newest and self.newest.run != request.run:
            self.remove_copies()
        self.newest = request
        try:
            self.child = around.begin(request.attempt, environment)
        except SiteError as error:
            return self._end_unstarted(request, ended(How.LAUNCHER_ERROR, why=error))
        self.busy = request
        self._tell()
        return None

    def remove_copies(self) -> None:
        """Remove what the newest attempt left in the memory of the hosts."""
        if self.newest:
            copies.remove(self.newest.run, self.newest.attempt.number)

    def _finish(self, *, certain: bool = True) -> None:
        """Record the end of the attempt that ran. The scheduler knows no more of it: its own job continues."""
        request, self.child, self.busy = self.busy, None, None
        self.since_s, self.attempts = time.time(), self.attempts + 1
        self._tell()
        if request is None:
            return
        with contextlib.suppress(SiteError):  # a full disk, or a damaged record
            end = End.read(request.attempt.end)
            if end is None:  # its script was killed
                end = ended(How.KILLED_IN_HOLD, certain=certain)
                end.write(request.attempt.end)
            print(f"torusrun: attempt {request.attempt.number} of {request.run.run_id}: {end.state.value}", flush=True)
            if certain and not ledger.last(ledger.events(request.run.ledger), Ended, request.attempt.number):
                ledger.append(request.run.ledger, Ended.by(request.attempt.number, end))
                note(request.run, request.attempt.number, end)

    def _close(self) -> None:
        """Take no more requests; those already in the inbox are taken."""
        with contextlib.suppress(OSError):
            self.attempt.inbox.rename(self.attempt.closed_inbox)
            self._take(self.attempt.closed_inbox)

    def _refuse_waiting(self, why: str) -> None:
        while self.waiting:
            request = self.waiting.popleft()
            self._end_unstarted(request, ended(How.NOT_BEGUN_IN_HOLD, allocation=self.folder.run_id, why=why))

    def _end_unstarted(self, request: AskedOf, end: End) -> None:
        with contextlib.suppress(SiteError):
            end.write(request.attempt.end)
            ledger.append(request.run.ledger, Ended.by(request.attempt.number, end))
        self._tell()

    def _tell(self) -> None:
        busy = self.busy.run.run_id if self.busy else ""
        waiting = tuple(request.run.run_id for request in self.waiting)
        state = KeeperState(
            os.getpid(), socket.gethostname(), self.until_s, self.idle_s, self.since_s, busy, waiting, self.attempts
        )
        with contextlib.suppress(SiteError):
            state.write(self.attempt)

    def _signal(self, number: signal.Signals) -> None:
        if self.child and self.child.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.child.pid, number)
