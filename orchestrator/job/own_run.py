"""A run as the source of attempts: its own jobs begin them one after the other, for as long as they can.

A run that keeps going has several jobs: if a job cannot continue the run, the next job does. A job that has nothing
left to do ends at once. The job of any other run begins one attempt.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import FrameType

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import TorusrunError
from torusrun.orchestrator.base.states import Cause, State
from torusrun.orchestrator.job import copies
from torusrun.orchestrator.job.deputy import JobPulse
from torusrun.orchestrator.job.in_job import InJob
from torusrun.orchestrator.job.recorded import end_of
from torusrun.orchestrator.job.turns import LOOK_S, Turn, Turns
from torusrun.orchestrator.place.hosts.same_host import without
from torusrun.orchestrator.run import hooks
from torusrun.orchestrator.run.attempts import bad_hosts
from torusrun.orchestrator.run.attempts.keep_going import Here, close, next_step
from torusrun.orchestrator.run.folder import allocation, ledger
from torusrun.orchestrator.run.folder.events import Ended, LeftOut, Started
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.records import DISK_FULL, End, has_room
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.state import next_attempt
from torusrun.orchestrator.run.state.attempts import newest_of
from torusrun.orchestrator.run.state.decide import Resume, Step, Stop, Wait
from torusrun.orchestrator.schedulers import client, interface
from torusrun.training.counted import counted

ROOM_S = 2.0  # between looks for room on a full disk
OF_THE_JOB = (Cause.TIME_LIMIT, Cause.PREEMPTED)  # causes that end the job, too


class OwnRun(Turns):
    """One of the jobs of a run."""

    def __init__(self, run: RunFolder, attempt: Attempt, plan: Plan) -> None:
        super().__init__(run, attempt, plan)
        folder = os.environ.get(allocation.VARIABLE, "")
        self.held = str(Attempt(Path(folder)).run.folder) if folder else ""  # the allocation around this job
        self.keeps_going = plan.keeps_going and not self.held
        self.hosts = interface.hosts_of(self.scheduler)
        self.job = self.scheduler.own_job(os.environ)
        self.task = self.scheduler.own_task(os.environ)
        self.until_s = allocation.until_s() or time.time() + plan.run.time_s
        self.turn = self.task or 0  # of the jobs of the run, from 0
        self.lost: dict[str, None] = {}  # hosts of this job that are gone, or failed the preflight
        self.checked = bool(self.held)  # whether its hosts passed the preflight; in an own job, ranks began on them
        self.begun = 0  # the newest attempt that this job began
        self.last: tuple[int, End] | None = None  # the attempt that ended last, if it was not considered yet
        self.failed: tuple[str, int] | None = None  # a step of the job's script that failed, and its exit code
        self.pulse = JobPulse(attempt, plan, self.scheduler, self.name)
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR2):
            signal.signal(number, self._on_signal)
        self.shell = os.getppid()
        process.die_with_parent(signal.SIGTERM)

    def run_in_job(self, failed: Sequence[str] = ()) -> State:
        """Work for the run as long as this job can; the state of the last attempt.

        `failed` are the step of the job's script that failed, and its exit code; () if none did.
        """
        print(f"torusrun: job {self.name} of {self.run.run_id}, on {socket.gethostname()}", flush=True)
        self.failed = (failed[0], int(failed[1])) if failed else None
        with contextlib.ExitStack() as afterwards:
            if not self.held:
                afterwards.callback(self._remove_copies)
            if self.keeps_going and (self.plan.outlives_hosts or self.scheduler.traits.outlives_hosts):
                afterwards.enter_context(self.pulse.given(self._hosts))
            return self.work()

    def _remove_copies(self) -> None:
        """Remove what ranks left in the memory of this job's hosts."""
        if self.begun:
            copies.remove(self.run, self.begun, self.lost)

    def next(self) -> Turn | State:
        """The next attempt, once it may begin; the state of the last if this job has nothing left to do."""
        last, self.last = self.last, None
        if not self.keeps_going:
            return last[1].state if last else self._turn(self.first)
        if last and not self._continues(*last):
            return self._leave(*last)
        while True:
            self._wait_for_room()
            step = next_step(self.run, self._here(), begin=not self.asked_s)
            if isinstance(step, Wait):
                if self._pause(step):
                    continue
                return self._refuse(step)
            if not isinstance(step, Resume):
                return self._nothing_left(step)
            if self.asked_s:
                return State.CANCELLED  # the next job begins this attempt
            return self._turn(step.attempt)

    def _turn(self, number: int) -> Turn | State:
        """The turn of this attempt, which reads the job's file; its end if the job's script failed."""
        attempt = self.run.attempt(number)
        self.begun = number
        if self.failed:
            step, code = self.failed
            end = ended(How.STEP_FAILED, what=step, exit_code=code, host=socket.gethostname(), certain=False)
            end.write(attempt.end)
            return self._leave(number, end)
        in_job = InJob(self.name, self.until_s, self.keeps_going, self.held, tuple(self.lost), checked=self.checked)
        in_job.write(attempt)
        command = process.module(self.plan.python, "torusrun.orchestrator.job.supervise", attempt.folder)
        return Turn(attempt, command, os.environ, redirected=self.keeps_going, own_group=self.keeps_going)

    def ended(self, turn: Turn, code: int) -> None:
        """Note how the attempt ended, also if its supervisor was killed before it could record that."""
        number, end = turn.attempt.number, end_of(turn.attempt, code)
        if self.keeps_going:
            print(f"torusrun: attempt {number}: {end.state.value}: {end.reason}", flush=True)
        self.last = number, end

    def _wait_for_room(self) -> None:
        """While the run's disk is full no attempt can begin."""
        if not has_room(self.run.folder):
            print(f"torusrun: {DISK_FULL}: the next attempt waits for that", flush=True)
            self._wait_while(lambda: not has_room(self.run.folder), ROOM_S)

    def _wait_while(self, condition: Callable[[], bool], every_s: float) -> None:
        """Wait while a condition holds, as long as an attempt could begin in this job."""
        while condition() and not self.asked_s and self._has_time:
            time.sleep(every_s)

    def _here(self) -> Here:
        bad = {} if self.begun else self._bad_hosts()
        return Here(self.job, self.name, self.first, len(self._hosts()), self.begun, bad, self._names_after())

    def _names_after(self) -> Sequence[str]:
        """The names of the run's jobs that begin after this job."""
        if self.task is None:
            return self._later_jobs()
        return [self.scheduler.task_id(self.job, task) for task in range(self.task + 1, self.plan.jobs)]

    def _pause(self, step: Wait) -> bool:
        """Wait as long as a step asks for; whether this job has time left then."""
        if not step.for_s:
            return False
        print(f"torusrun: {self.run.run_id} {step.why}", flush=True)
        until_s = time.time() + step.for_s
        self._wait_while(lambda: time.time() < until_s, LOOK_S)
        return bool(self.asked_s) or self._has_time or self._next_turn()

    @property
    def _has_time(self) -> bool:
        return time.time() < self.until_s - self.plan.stop_before_s

    def _bad_hosts(self) -> Mapping[str, str]:
        """The bad hosts of this job, with the reason for each, if it has too few others; {} else."""
        if self.scheduler.traits.one_machine:
            return {}
        bad = bad_hosts.given(self.run, self.first, self.hosts)
        return bad if len(self.hosts) - len(bad) < self._fewest else {}

    @property
    def _fewest(self) -> int:
        """The fewest hosts on which an attempt can begin."""
        return (self.plan.run.keep_going.min_nodes or self.plan.run.nodes) + self.plan.service_nodes

    def _hosts(self) -> list[str]:
        """The hosts of this job that are not lost."""
        return without(self.hosts, self.lost)

    def _continues(self, number: int, end: End) -> bool:
        """Whether the next attempt may begin in this job."""
        self._learn(number, end)
        alone = self.scheduler.traits.one_machine  # then no scheduler ends the job, whoever stopped the attempt
        ended_with_job = end.cause in OF_THE_JOB or (end.cause is Cause.STOPPED and not end.certain and not alone)
        if self.asked_s or ((ended_with_job or not self._has_time) and not self._next_turn()):
            return False
        return len(self._hosts()) >= self._fewest

    def _learn(self, number: int, end: End) -> None:
        """Note the hosts that an attempt lost, or that failed its preflight."""
        events = ledger.events(self.run.ledger)
        left_out = ledger.last(events, LeftOut, number)
        gone = end.hosts if end.cause in (Cause.HOST_LOST, Cause.BAD_HOST) else ()
        self.lost.update(dict.fromkeys((*gone, *(left_out.hosts if left_out else ()))))
        self.checked = self.checked or ledger.last(events, Started, number) is not None

    def _next_turn(self) -> bool:
        """Begin this job's next turn, if any is left: this machine needs no other job for that."""
        if not self.scheduler.traits.one_machine or self.turn + 1 >= self.plan.jobs:
            return False
        self.turn, self.until_s = self.turn + 1, time.time() + self.plan.run.time_s
        return True

    def _leave(self, number: int, end: End) -> State:
        """Leave the run to the next job, if a job follows and something is left to do.

        The scheduler may know better how an attempt ended that did not end by itself. The next job asks it.
        """
        if not self._is_last and (self.asked_s or not end.certain):
            return end.state
        step = next_step(self.run, self._here(), begin=False)
        if isinstance(step, Resume):
            self._hand_on(number)
        else:
            self._nothing_left(step)
        return end.state

    def _hand_on(self, number: int, *bad: str) -> None:
        """Leave the run to a next job that avoids bad hosts; close the run if this is its last job."""
        if not self._is_last:
            return self._avoid_bad_hosts()
        why = f"the last of its {counted(self.plan.jobs, 'job')} is over (keep_going.attempts)"
        close(self.run, number, Stop(why, hosts=bad))
        return self._call_hooks()

    def _call_hooks(self) -> None:
        """Call the hooks of a run that is over, if it is."""
        number = newest_of(self.run)
        if not next_attempt.may_begin_another(ledger.events(self.run.ledger), number):
            hooks.over(self.run, number, self.plan)

    def _refuse(self, step: Wait) -> State:
        """Leave the run to the next job, because of this job's bad hosts."""
        print(f"torusrun: {self.run.run_id} {step.why}", flush=True)
        self._hand_on(newest_of(self.run), *self._bad_hosts())
        return Cause.BAD_HOST.state

    def _avoid_bad_hosts(self) -> None:
        """Have the scheduler leave out of the later jobs the hosts that have turned bad since the submission."""
        jobs = self._later_jobs() if self.task is None else [self.job]
        tasks = None if self.task is None else (self.task + 1, self.plan.jobs - 1)
        if not jobs:
            return
        try:
            bad_hosts.leave_out(self.run, self.first, jobs, tasks)
        except TorusrunError as error:
            print(f"torusrun: later jobs may be given bad hosts again: {error}", file=sys.stderr, flush=True)

    @property
    def _is_last(self) -> bool:
        if self.task is not None or self.scheduler.traits.one_machine:
            return self.turn + 1 >= self.plan.jobs
        return not (self._later_jobs() or next_attempt.lacks_jobs(ledger.events(self.run.ledger), self.first))

    def _later_jobs(self) -> Sequence[str]:
        """The jobs that begin after this job, if each was submitted by itself."""
        return next_attempt.later_jobs(ledger.events(self.run.ledger), self.first, self.job)

    def _nothing_left(self, step: Step) -> State:
        """This job, and the later jobs, have nothing to do; how the run ended, which its exit code must not hide."""
        if not isinstance(step, Resume):
            print(f"torusrun: no further attempt of {self.run.run_id}: {step.why}", flush=True)
        if not (isinstance(step, Stop) and step.later_job):
            self._leave_no_jobs()
            self._call_hooks()
        end = ledger.last(ledger.events(self.run.ledger), Ended, newest_of(self.run))
        return end.state if end else State.LOST

    def _leave_no_jobs(self) -> None:
        """Remove the run's later jobs from the queue. If this node cannot, each ends as soon as it begins."""
        asks = client.of(self.plan.site)
        try:
            if self.task is None:
                asks.cancel(*self._later_jobs()[::-1])
            elif self.task + 1 < self.plan.jobs:
                asks.cancel_tasks(self.job, self.task + 1, self.plan.jobs - 1)
        except TorusrunError as error:
            print(f"torusrun: later jobs stay in the queue, and end as soon as they begin: {error}", file=sys.stderr)

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        """End the job on request. If only its shell was killed, this machine needs none: another attempt follows."""
        alone = self.keeps_going and self.scheduler.traits.one_machine
        if alone and os.getppid() != self.shell:
            self.signal(signal.SIGTERM)
        else:
            self.ask_to_end()
