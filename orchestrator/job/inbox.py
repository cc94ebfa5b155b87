"""The inbox of a held allocation as the source of attempts, by a program that users know as its keeper.

It checks that ranks start, then starts attempts of runs, each by the script that its own job would run. It ends when
its user asks for it, when its time is over, or when no attempt has come for the idle limit. What an attempt left in the
memory of the hosts stays for the next attempt of its run, until another run begins or the keeper ends.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections import deque
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.job import copies
from torusrun.orchestrator.job.load.monitor import of_node
from torusrun.orchestrator.job.recorded import recorded
from torusrun.orchestrator.job.shell_requests import starter
from torusrun.orchestrator.job.start.launch_order import ordered
from torusrun.orchestrator.job.stop_requests import StopRequests
from torusrun.orchestrator.job.supervise import Supervisor
from torusrun.orchestrator.job.turns import Turn, Turns
from torusrun.orchestrator.run import hooks
from torusrun.orchestrator.run.folder import allocation, ledger
from torusrun.orchestrator.run.folder.allocation import AskedOf, KeeperState
from torusrun.orchestrator.run.folder.events import CancelRequested, Ended, Submitted
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import End
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.training.counted import counted

WAITING_LOOK_S = 1.0  # between looks for cancellations of waiting attempts


def keep(run: RunFolder, attempt: Attempt, plan: Plan) -> State:
    """Check that ranks start in the allocation, keep it until it ends, and record its end; its state."""
    began_s = time.time()

    def work() -> End:
        supervisor = Supervisor(run, attempt, [])
        checked = supervisor.run(job)
        if checked.state is not State.COMPLETED:
            return checked
        with of_node(attempt, ordered(attempt)[1], supervisor.here, os.sched_getaffinity(0)):
            inbox = Inbox(run, attempt, supervisor.plan, allocation.idle_limit_s(run), began_s + plan.run.time_s)
            afterwards.callback(inbox.remove_copies)
            return inbox.keep()

    job = schedulers.get(plan.site.scheduler).own_name(os.environ)
    with contextlib.ExitStack() as afterwards:  # the end is recorded first: hosts that do not answer take time
        end = recorded(run, attempt, work)
    if end.state is not State.COMPLETED:
        print(f"torusrun: {end.state.value}: {end.reason}", file=sys.stderr, flush=True)
    return end.state


class Inbox(Turns):
    """The job of a held allocation, in which attempts run one after the other until it ends."""

    def __init__(self, run: RunFolder, attempt: Attempt, plan: Plan, idle_s: float, until_s: float) -> None:
        super().__init__(run, attempt, plan)
        self.attempt, self.idle_s, self.until_s = attempt, idle_s, until_s
        self.shells = starter(attempt.shells, plan.site, plan.python)
        self.waiting: deque[AskedOf] = deque()
        self.newest: AskedOf | None = None  # the attempt that was started last
        self.since_s = time.time()
        self.attempts = 0
        self.requests = StopRequests(run, attempt)
        self.stop: End | None = None  # by which the allocation ends
        self.closing = ""  # why no more requests are taken; earlier requests still run, if time is left
        self.looked_s = 0.0

    def keep(self) -> End:
        """Start the requested attempts until the allocation ends; return its end."""
        print(f"torusrun: held; {self.idle_s:g} s without an attempt end the allocation", flush=True)
        self._tell()
        self.work()
        return self.stop or ended(How.GIVEN_BACK, why=self.closing, attempts=counted(self.attempts, "attempt"))

    def look(self) -> None:
        """Take requests, begin to end on request, and end waiting attempts that were cancelled."""
        if (stop := self.requests.look()) and not self.stop:
            self._stop(stop)
        if not self.closing and not self.stop:
            self._take(self.attempt.inbox)
        if self.waiting and time.monotonic() > self.looked_s + WAITING_LOOK_S:
            self.looked_s = time.monotonic()
            for request in [request for request in self.waiting if _is_cancelled(request)]:
                self.waiting.remove(request)
                self._end_unstarted(request, ended(How.CANCELLED_BEFORE))
        if self.shells:
            self.shells.look()

    def next(self) -> Turn | State | None:
        """The next attempt that waits; the state of the allocation once it ends; None for neither."""
        if self.stop:
            return self.stop.state
        if self.waiting and self._left():
            return self._turn(self.waiting.popleft())
        if not self.closing and (why := self._over()):
            self.closing = why
            self._close()
        if not self.closing:
            return None
        self._refuse_waiting(self.closing)
        return State.COMPLETED

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

    def _stop(self, stop: End) -> None:
        """Begin to end the running attempt, the waiting attempts, and then the allocation."""
        self.stop = stop
        self._close()
        self._refuse_waiting(stop.reason)
        if not self.newest or not self.busy:
            return
        self.asked_s = time.time()
        if stop.certain:  # cancelled by its user: so is the attempt
            ledger.append(self.newest.run.ledger, CancelRequested(self.newest.attempt.number))
        else:
            self.signal(signal.SIGTERM)

    def _take(self, inbox: Path) -> None:
        for request in allocation.take(inbox):
            if not request.kill:
                print(f"torusrun: attempt {request.attempt.number} of {request.run.run_id} came", flush=True)
                self._note_job(request)
                self.waiting.append(request)
                self._tell()
            elif self.busy and request.attempt == self.busy.attempt:
                self.signal(signal.SIGKILL)

    def _note_job(self, request: AskedOf) -> None:
        """Write the job of an attempt into its ledger if its client did not, for example since it was killed."""
        number, job = request.attempt.number, allocation.job(self.run)
        with contextlib.suppress(SiteError):
            if job and not ledger.last(ledger.events(request.run.ledger), Submitted, number):
                ledger.append(request.run.ledger, Submitted(number, job, self.plan.site.scheduler, looked_up=True))

    def _turn(self, request: AskedOf) -> Turn | None:
        """The turn of a request, by the script that its own job would run; None if it was cancelled."""
        if _is_cancelled(request):
            self._end_unstarted(request, ended(How.CANCELLED_BEFORE))
            return None
        own = {name: value for name, value in os.environ.items() if name not in self.plan.run.env}
        self.since_s = time.time()
        if self.newest and self.newest.run != request.run:
            self.remove_copies()
        self.newest = request
        name = f"{request.run.run_id}.{request.attempt.number}"
        environment = {**own, allocation.VARIABLE: str(self.attempt.folder)}
        # A script ignores SIGTERM. If it is killed, what it started ends in order.
        command = ["/bin/bash", str(request.attempt.script), name]
        return Turn(request.attempt, command, environment, parent_death=signal.SIGKILL)

    def begin(self, turn: Turn) -> None:
        """Begin an attempt; an error is its end."""
        try:
            super().begin(turn)
        except SiteError as error:
            self._end_unstarted(AskedOf(turn.attempt), ended(How.LAUNCHER_ERROR, why=error))
        self._tell()

    def remove_copies(self) -> None:
        """Remove what the newest attempt left in the memory of the hosts."""
        if self.newest:
            copies.remove(self.newest.run, self.newest.attempt.number)

    def ended(self, turn: Turn, code: int) -> None:
        """Record the end of the attempt that ran. The scheduler knows no more of it: its own job continues."""
        attempt, run = turn.attempt, turn.attempt.run
        self.since_s, self.attempts = time.time(), self.attempts + 1
        self._tell()
        certain = self.stop is None or self.stop.certain
        with contextlib.suppress(SiteError):  # a full disk, or a damaged record
            end = End.read(attempt.end)
            if end is None:  # its script was killed
                end = ended(How.KILLED_IN_HOLD, certain=certain)
                end.write(attempt.end)
            print(f"torusrun: attempt {attempt.number} of {run.run_id}: {end.state.value}", flush=True)
            if certain and not ledger.last(ledger.events(run.ledger), Ended, attempt.number):
                ledger.append(run.ledger, Ended.by(attempt.number, end))
                hooks.ended(run, attempt.number, end)

    def _close(self) -> None:
        """Take no more requests; those already in the inbox are taken."""
        with contextlib.suppress(OSError):
            self.attempt.inbox.rename(self.attempt.closed_inbox)
            self._take(self.attempt.closed_inbox)

    def _refuse_waiting(self, why: str) -> None:
        while self.waiting:
            request = self.waiting.popleft()
            self._end_unstarted(request, ended(How.NOT_BEGUN_IN_HOLD, allocation=self.run.run_id, why=why))

    def _end_unstarted(self, request: AskedOf, end: End) -> None:
        with contextlib.suppress(SiteError):
            end.write(request.attempt.end)
            ledger.append(request.run.ledger, Ended.by(request.attempt.number, end))
        self._tell()

    def _tell(self) -> None:
        busy = self.newest.run.run_id if self.newest and self.busy else ""
        waiting = tuple(request.run.run_id for request in self.waiting)
        state = KeeperState(
            os.getpid(), socket.gethostname(), self.until_s, self.idle_s, self.since_s, busy, waiting, self.attempts
        )
        with contextlib.suppress(SiteError):
            state.write(self.attempt)


def _is_cancelled(request: AskedOf) -> bool:
    return ledger.last(ledger.events(request.run.ledger), CancelRequested, request.attempt.number) is not None
