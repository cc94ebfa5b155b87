"""The client of a site's scheduler: the only code that runs a scheduler's commands."""

from __future__ import annotations

import contextlib
import math
import os
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base import private, process
from torusrun.orchestrator.base.environment import jobs_environment
from torusrun.orchestrator.base.errors import SiteError, TorusrunError, UserError
from torusrun.orchestrator.base.process import NoAnswer, Streams
from torusrun.orchestrator.base.states import State, Status
from torusrun.orchestrator.keys.paths import state_folder
from torusrun.orchestrator.schedulers.interface import Query, Request, Scheduler

if TYPE_CHECKING:  # `status` needs none of these
    from torusrun.orchestrator.keys.site import Site
    from torusrun.orchestrator.schedulers.cluster_facts import Ask, ClusterFacts

T = TypeVar("T")


def of(site: Site) -> Client:
    return Client(schedulers.get(site.scheduler), site.command_timeout_s, site.remote_shell == "ssh")


def ssh(host: str, argv: Sequence[str], *, terminal: bool) -> list[str]:
    """The command that runs `argv` on another host by ssh, as one line for the shell of that host."""
    return ["ssh", *(["-t"] if terminal else []), "--", host, shlex.join(argv)]


def asking(timeout_s: float) -> Ask:
    """A function that runs a command that describes a cluster, and returns its output."""
    return lambda argv: process.run(argv, timeout_s=timeout_s).check(f"asking `{shlex.join(argv)}`").stdout


def answers_file(scheduler: Scheduler) -> Path:
    """The file of a cluster's answers. Each login node has its own, since clusters may share a home folder."""
    import hashlib  # it loads OpenSSL, which `status` needs only for a query

    parts = [os.uname().nodename, *(os.environ.get(name, "") for name in scheduler.variables.cluster)]
    key = hashlib.sha256("\0".join(parts).encode()).hexdigest()[:12]
    name = "".join(char if char.isalnum() else "-" for char in scheduler.name)
    return state_folder() / "answers" / f"{name}-{key}.json"


def note_action(scheduler: Scheduler) -> None:
    """Make the scheduler's earlier answers too old, by a new mark. Without a mark they become too old with time."""
    if scheduler.traits.one_machine:
        return
    with contextlib.suppress(TorusrunError, OSError):
        path = answers_file(scheduler).with_suffix(".acted")
        private.make(path.parent)
        private.write_bytes(path, os.urandom(8).hex().encode())


@dataclass(frozen=True)
class Client:
    """One scheduler, the time limit of each of its commands, and whether its hosts are reached by ssh.

    All queries about jobs together end by `until_s` (of time.monotonic()).
    """

    scheduler: Scheduler
    timeout_s: float
    by_ssh: bool = False
    until_s: float = math.inf

    @property
    def left_s(self) -> float:
        """How long a query may take now; 0 if the time is over."""
        return max(min(self.timeout_s, self.until_s - monotonic()), 0.0)

    def _ask(self, query: Query[T]) -> T:
        if not self.left_s:
            raise NoAnswer(f"there was no time left to ask {self.scheduler.name}")
        half_seconds = math.ceil(2 * self.left_s)  # rounded, since an error may name the time
        return query.read(process.run(query.command, timeout_s=min(half_seconds / 2, self.timeout_s)))

    def submit(self, script: Path, request: Request, cwd: Path | None = None) -> str:
        """Submit `script` from the folder `cwd`; the job's id.

        Raises SiteError if the scheduler refuses, and NoAnswer if it may have the job all the same: then `find` looks
        for the job by the request's token.
        """
        command, job = self.submit_argv(script, request), ""
        try:
            finished = process.run(command, timeout_s=self.timeout_s, cwd=cwd, environment=self._environment(request))
            silent = self.scheduler.traits.silent
            try:
                job = self.scheduler.job_id(finished.check("submitting the job").stdout)
                if where := self.scheduler.job_elsewhere(finished.stdout):
                    job = ""
                    raise SiteError(where)
            except SiteError as error:
                if not finished.exit_code and finished.stdout.strip() and (job := self._visible(request)):
                    return job
                if not finished.exit_code or (silent and re.search(silent, finished.stderr)):
                    raise NoAnswer(str(error)) from None
                raise
        finally:
            note_action(self.scheduler)
        return job

    def _environment(self, request: Request) -> dict[str, str]:
        """The environment of a command that reads the script of this request. Raises UserError if it names a cluster
        that the queries do not reach.
        """
        if named := [name for name in self.scheduler.variables.elsewhere if os.environ.get(name)]:
            raise UserError(
                f"{named[0]}={os.environ[named[0]]} is set, and torusrun uses one cluster per site: unset it, and "
                f"log in to that cluster or set {self.scheduler.variables.cluster[0]}"
            )
        return {name: value for name, value in jobs_environment().items() if name not in request.secrets}

    def _visible(self, request: Request) -> str:
        """The job of a request whose submit command printed no usable id, if a query reports just one job; else ''."""
        with contextlib.suppress(SiteError):
            jobs = self.find(request.token) if request.token else None
            return jobs[0] if jobs and len(jobs) == 1 else ""
        return ""

    def submit_argv(self, script: Path, request: Request) -> list[str]:
        """The command that submits `script`."""
        return self.scheduler.submit_command(script, request)

    def ask(self, text: str, request: Request) -> str:
        """The scheduler's answer whether the job of a script with this text could run; nothing is submitted.

        Raises UserError if the scheduler has no such query, SiteError if it would refuse the job.
        """
        if (finished := self.tried(text, request)) is None:
            raise UserError(f"{self.scheduler.name} cannot check this job without submitting it: leave out --ask")
        finished.check("asking whether the job could run")
        return finished.stderr.strip() or finished.stdout.strip()

    def tried(self, text: str, request: Request, *, now: bool = False) -> process.Finished | None:
        """The end of a command that fails if the job of this script could not run, or not `now`; None: no command."""
        command = (self.scheduler.room_command if now else self.scheduler.ask_command)(request)
        if command is None:
            return None
        return process.run(command, timeout_s=self.timeout_s, text=text, environment=self._environment(request))

    def poll(self, job_ids: Sequence[str]) -> dict[str, Status]:
        """The states of all these jobs, by one command, and by a second command for jobs that the first did not report.

        A job that neither reports is LOST, with the reason. If the scheduler did not answer, jobs are UNKNOWN, since a
        failed poll is not a failed job.
        """
        try:
            states = self.survey(job_ids) if job_ids else {}
        except SiteError as error:
            return {job_id: Status(State.UNKNOWN, str(error)) for job_id in job_ids}
        return {job_id: states[job_id] for job_id in job_ids}

    def survey(self, job_ids: Sequence[str]) -> dict[str, Status]:
        """As `poll`, with all other jobs in the command's output. Raises SiteError if the scheduler did not answer."""
        states = self._ask(self.scheduler.status_query(job_ids))
        return {**states, **self.recorded([job_id for job_id in job_ids if job_id not in states])}

    def recorded(self, job_ids: Sequence[str]) -> dict[str, Status]:
        """The states of jobs that are not in the queue, from the scheduler's records."""
        query = self.scheduler.accounting_query(job_ids) if job_ids else None
        if query is None:
            return {job_id: Status(State.LOST, "it has left the queue") for job_id in job_ids}
        try:
            records = self._ask(query)
        except SiteError as error:
            reason = f"it has left the queue, and accounting did not answer ({error})"
            return {job_id: Status(State.UNKNOWN, reason) for job_id in job_ids}
        nowhere = Status(State.LOST, "it has left the queue, and accounting has no record of it")
        return {job_id: records.get(job_id, nowhere) for job_id in job_ids}

    def lost(self, host: str) -> str:
        """Why the scheduler has lost a host; '' if it has not, does not say or does not answer."""
        query = self.scheduler.host_query(host) if host else None
        with contextlib.suppress(SiteError):
            return self._ask(query) if query else ""
        return ""

    def find(self, token: str) -> list[str] | None:
        """The jobs of this user that were submitted with `token`; None if the scheduler has no such query.

        Raises SiteError if it did not answer.
        """
        query = self.scheduler.find_query(token)
        return self._ask(query) if query else None

    def in_turn(self, request: Request, name: str, before: str) -> Request:
        """The request of a job of this name that begins after any end of the job `before`, with the same script.

        Raises SiteError if the scheduler has no words for that.
        """
        words = (*request.submit_args, *self.scheduler.in_turn_args(name, before))
        return replace(request, token=name, submit_args=words)

    @property
    def estimates_starts(self) -> bool:
        """Whether the scheduler has a query for the starts of waiting jobs."""
        return self.scheduler.start_query(()) is not None

    def starts(self, job_ids: Sequence[str]) -> dict[str, float]:
        """The estimated starts of waiting jobs (of time.time()), where the scheduler has an estimate.

        Raises SiteError if it did not answer. `answers.starts` shares the answer.
        """
        query = self.scheduler.start_query(job_ids)
        return self._ask(query) if query else {}

    def cancel(self, *job_ids: str) -> None:
        """End jobs, by one command if the scheduler `cancels_many`. Raises SiteError if a command failed."""
        together = [job_ids] if self.scheduler.traits.cancels_many and job_ids else [(job_id,) for job_id in job_ids]
        for first, *others in together:
            command = [*self.scheduler.cancel_command(first), *others]
            self._cancel(command, f"{1 + len(others)} jobs" if others else f"job {first}")

    def pass_on(self, job_id: str, lost: int) -> None:
        """Let another task of an array begin in place of a lost task. Raises SiteError if that failed, as at first."""
        command = self.scheduler.after_loss_command(job_id, lost) or self.scheduler.cancel_command(job_id)
        self._cancel(command, f"job {job_id}")

    def leave_out(self, job_id: str, tasks: tuple[int, int] | None, request: Request) -> bool:
        """Leave the hosts of `request.exclude` out of a waiting job, or the waiting `tasks` (from 0) of an array.

        False if the scheduler has no command for it. Raises SiteError if the command failed.
        """
        command = self.scheduler.leave_out_command(job_id, tasks, request)
        if command:
            process.run(command, timeout_s=self.timeout_s).check(f"leaving hosts out of job {job_id}")
        return command is not None

    def cancel_tasks(self, job_id: str, first: int, last: int) -> None:
        """End the tasks `first` to `last` (from 0) of an array. Raises SiteError if the command failed."""
        self._cancel(self.scheduler.cancel_tasks_command(job_id, first, last), f"tasks of job {job_id}")

    def _cancel(self, command: Sequence[str], jobs: str) -> None:
        try:
            process.run(command, timeout_s=self.timeout_s).check(f"cancelling {jobs}")
        finally:
            note_action(self.scheduler)

    @property
    def can_describe(self) -> bool:
        """Whether the scheduler has a query about its cluster."""
        return self.scheduler.cluster.query_facts is not None

    def describe(self) -> ClusterFacts:
        """The cluster as the scheduler's commands report it. Raises SiteError if they do not."""
        if query := self.scheduler.cluster.query_facts:
            return query(asking(self.timeout_s))
        raise SiteError(f"torusrun has no query for the cluster of {self.scheduler.name}")

    def hosts(self, queue: str | None) -> tuple[str, ...]:
        """The names of the hosts of a queue, or of the usual queue for None; () if the scheduler does not list them."""
        query = self.scheduler.cluster.query_hosts
        try:
            return query(asking(self.timeout_s), queue) if query else ()
        except SiteError:
            return ()

    def shell(
        self, job_id: str, host: str, argv: Sequence[str], *, terminal: bool, streams: Streams | None = None
    ) -> int:
        """Run a program on a host of a running job, on the user's terminal or with `streams`; its exit code.

        Raises SiteError if the scheduler has no way to reach the host.
        """
        command = self._shell(job_id, host, argv, terminal)
        return process.join(command, streams) if streams else process.interact(command)

    def _shell(self, job_id: str, host: str, argv: Sequence[str], terminal: bool) -> list[str]:
        if self.by_ssh and not self.scheduler.traits.one_machine:
            return ssh(host, argv, terminal=terminal)
        make = self.scheduler.reach.shell_command
        if make is None:
            why = "cannot start a shell in a running job; if the nodes have ssh, set remote_shell: ssh"
            raise SiteError(f"{self.scheduler.name} {why}")
        return make(job_id, host, argv, terminal)

    @property
    def shell_from_inside(self) -> bool:
        """Whether the job must start the program of a shell (orchestrator.beside.shells), because `shell` cannot."""
        return self.scheduler.reach.from_inside and not self.by_ssh
