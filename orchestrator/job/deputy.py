"""Lets the next job of a run begin if the first host of the job at work is lost, from another of its hosts.

Some schedulers let a job continue without a host that it has lost: Slurm and PBS if it asks for that, Grid Engine
always. If this was its first host, nothing of the job would begin another attempt, until its time limit.

`orchestrator.job.deputy ATTEMPT_FOLDER JOB`, with the attempt that was submitted with the job. It is started through
the scheduler, and has not the job's environment.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError, TorusrunError
from torusrun.orchestrator.run import hooks
from torusrun.orchestrator.run.folder import ledger
from torusrun.orchestrator.run.folder.attempt_folders import supervised_on
from torusrun.orchestrator.run.folder.claim import alone
from torusrun.orchestrator.run.folder.events import Ended, Started
from torusrun.orchestrator.run.folder.how_ended import How, ended
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.plan.plan import Plan
from torusrun.orchestrator.run.plan.plan_files import read_attempt
from torusrun.orchestrator.run.state.attempts import newest_of
from torusrun.orchestrator.run.state.next_attempt import attempts_of_submission
from torusrun.orchestrator.schedulers import client, interface
from torusrun.orchestrator.schedulers.interface import Scheduler
from torusrun.training.reporting.output import never_fail

BEAT_S = 5.0
LOOKS = 2
SILENT_S = 45.0  # the file system shows a change on other hosts after some seconds
LATER_S = 15.0  # a sign of life of another process of that host is later than the job's last sign
ANSWER_S = 15.0  # for the answer of a host
LOCK_S = 30.0  # for a client that resumes the run
TRIES = 20  # PBS ends a job only when it knows itself that the host is gone, by default 80 s after its last sign


class JobPulse:
    """The sign of life of the first host, and the deputy that looks at it."""

    def __init__(self, attempt: Attempt, plan: Plan, scheduler: Scheduler, job: str) -> None:
        self._attempt, self._plan, self._scheduler, self._job = attempt, plan, scheduler, job
        self._deputy: subprocess.Popen[bytes] | None = None
        self._over = threading.Event()

    @contextlib.contextmanager
    def given(self, hosts: Callable[[], Sequence[str]]) -> Iterator[None]:
        """Within this, a thread touches the file, and starts a deputy on another of the `hosts` if none lives."""
        thread = threading.Thread(target=self._give, args=(hosts,), daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join(BEAT_S)
            if self._deputy and self._deputy.poll() is None:
                self._deputy.terminate()

    def _give(self, hosts: Callable[[], Sequence[str]]) -> None:
        while not self._over.is_set():
            with contextlib.suppress(OSError):
                self._attempt.jobs_pulse.touch()
            if self._deputy is None or self._deputy.poll() is not None:
                with contextlib.suppress(SiteError):
                    self._deputy = self._started(hosts())
            self._over.wait(BEAT_S)

    def _started(self, hosts: Sequence[str]) -> subprocess.Popen[bytes] | None:
        here, reach = interface.this_host_of(self._scheduler, [*hosts]), self._scheduler.reach.remote_command
        others = [host for host in hosts if host != here]
        if not reach or not others:
            return None
        words = process.module(self._plan.python, "torusrun.orchestrator.job.deputy", self._attempt.folder, self._job)
        known = ("PATH", "PYTHONPATH", *self._scheduler.variables.cluster)  # by which it finds the scheduler's commands
        given = [f"{name}={os.environ[name]}" for name in known if name in os.environ]
        line = shlex.join(["env", *given, *words])
        return process.start(
            reach(others[-1], line), environment=os.environ, own_group=True, parent_death=signal.SIGTERM
        )


def main() -> None:
    attempt, job = Attempt(Path(sys.argv[1])), sys.argv[2]
    run = attempt.run
    try:
        plan = read_attempt(run, attempt.number).plan
    except TorusrunError as error:
        sys.exit(f"torusrun: {error}")
    os.umask(plan.site.umask)
    silent_s, looks = 0.0, 0
    while looks < LOOKS:  # after a suspension, a look may come before the first host is at work again
        time.sleep(BEAT_S)
        silent_s = silence_s(attempt)
        looks = looks + 1 if silent_s > SILENT_S else 0
    lives = host_lives(attempt, run.attempt(newest_of(run)), schedulers.get(plan.site.scheduler))
    what = "process" if lives else "first host"
    print(f"torusrun: the {what} of job {job} does not respond: another job continues the run", flush=True)
    with contextlib.suppress(TorusrunError), alone(run, LOCK_S):  # else the next job asks the scheduler how it ended
        _record(run, job, silent_s, lives=lives)
    for _ in range(TRIES):
        try:
            return client.of(plan.site).pass_on(job, _lost(run))
        except SiteError as error:
            print(f"torusrun: {error}", file=sys.stderr, flush=True)
            time.sleep(BEAT_S)


def host_lives(first: Attempt, newest: Attempt, scheduler: Scheduler) -> bool:
    """Whether the first host is at work, although its job, which began with the attempt `first`, gives no sign of life.

    The supervisor of the `newest` attempt is another process on that host, and the scheduler may reach it.
    """
    with contextlib.suppress(OSError):
        if newest.pulse.stat().st_mtime > first.jobs_pulse.stat().st_mtime + LATER_S:
            return True
    host, reach = supervised_on(newest), scheduler.reach.remote_command
    if not host or not reach:
        return False
    with contextlib.suppress(SiteError):  # it cannot be asked from here, or does not answer
        return process.run(reach(host, "true"), timeout_s=ANSWER_S, environment=os.environ).exit_code == 0
    return False


def _record(run: RunFolder, job: str, silent_s: float, *, lives: bool) -> None:
    """Record the end of the attempt that this job has at work: its supervisor was on the first host."""
    attempt = run.attempt(newest_of(run))
    began = ledger.last(ledger.events(run.ledger), Started, attempt.number)
    if not began or began.job != job:
        return
    host = supervised_on(attempt)
    if host and not attempt.end.exists():
        how, hosts = (How.JOB_SILENT, []) if lives else (How.FIRST_HOST_SILENT, [host])
        end = replace(ended(how, hosts=hosts, silent=host, silent_s=silent_s), kept_going=True)
        end.write(attempt.end)
        ledger.append(run.ledger, Ended.by(attempt.number, end))
        hooks.ended(run, attempt.number, end)


def _lost(run: RunFolder) -> int:
    """The number of jobs of the newest submission whose first host fell silent, this job included."""
    events = ledger.events(run.ledger)
    numbers = attempts_of_submission(events, newest_of(run))
    ends = [end for number in numbers if (end := ledger.last(events, Ended, number))]
    return max(sum("silent" in end.evidence for end in ends), 1)


def silence_s(attempt: Attempt) -> float:
    """The time since the first host touched its file. Both times are those of the file system, not of two hosts."""
    mine = attempt.jobs_pulse.with_name(f".{attempt.jobs_pulse.name}.{socket.gethostname()}")
    try:
        mine.touch()
        os.close(os.open(attempt.jobs_pulse, os.O_RDONLY))  # over NFS this fetches its current time
        return mine.stat().st_mtime - attempt.jobs_pulse.stat().st_mtime
    except OSError:
        return 0.0  # a file system that fails for a while is no evidence


if __name__ == "__main__":
    never_fail()
    main()
