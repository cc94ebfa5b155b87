"""The client of a site's scheduler. Nothing else runs a scheduler's commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator import process, schedulers
from orchestrator.errors import SiteError, UserError
from orchestrator.process import NoAnswer
from orchestrator.schedulers import acted
from orchestrator.schedulers.cluster_facts import ClusterFacts
from orchestrator.schedulers.interface import Request, Scheduler, ssh
from orchestrator.spec.site import Site
from orchestrator.states import State, Status


def of(site: Site) -> Client:
    """The client of a site's scheduler."""
    return Client(schedulers.get(site.scheduler), site.command_timeout_s, site.remote_shell == "ssh")


@dataclass(frozen=True)
class Client:
    """One scheduler, how long each of its commands may take, and whether its hosts are reached by ssh."""

    scheduler: Scheduler
    timeout_s: float
    by_ssh: bool = False

    def submit(self, script: Path, request: Request, cwd: Path | None = None) -> str:
        """Submit `script` from the folder `cwd`; the job's id.

        Raises SiteError when the scheduler refuses, and NoAnswer when there may be a job all the same: `find` then
        tells, by the request's token.
        """
        command, job = self.submit_argv(script, request), ""
        try:
            said = process.run(command, timeout_s=self.timeout_s, cwd=cwd).check("submitting the job")
            try:
                job = self.scheduler.job_id(said.stdout)
            except SiteError as error:
                raise NoAnswer(str(error)) from None
        finally:
            acted.note(self.scheduler, job)
        return job

    def submit_argv(self, script: Path, request: Request) -> list[str]:
        """The command that submits `script`."""
        return self.scheduler.submit_command(script, request)

    def ask(self, text: str, request: Request) -> str:
        """What the scheduler says of the job of a script with this text; nothing is submitted.

        Raises UserError where the scheduler cannot be asked that, SiteError where it would refuse the job.
        """
        command = self.scheduler.ask_command(request)
        if command is None:
            raise UserError(f"{self.scheduler.name} cannot be asked about a job without submitting it: leave out --ask")
        said = process.run(command, timeout_s=self.timeout_s, text=text)
        said.check("asking whether the job could run")
        return said.stderr.strip() or said.stdout.strip()

    def submit_words(self, request: Request) -> str:
        """The shell words that submit the script named after them, for a job that submits its successor."""
        return shlex.join(self.scheduler.submit_command(Path(), request)[:-1])

    def poll(self, job_ids: Sequence[str]) -> dict[str, Status]:
        """The states of all these jobs, by one command, and a second one for those that it did not tell of.

        A job that nobody knows any more is LOST with the reason. A scheduler that did not answer makes jobs UNKNOWN,
        since a failed poll is not a failed job.
        """
        found = self.survey(job_ids) if job_ids else {}
        return {job_id: found[job_id] for job_id in job_ids}

    def survey(self, job_ids: Sequence[str]) -> dict[str, Status]:
        """As `poll`, with all other jobs that the same command told of."""
        try:
            said = process.run(self.scheduler.status_command(job_ids), timeout_s=self.timeout_s)
            found = self.scheduler.parse_status(said)
        except SiteError as error:
            return {job_id: Status(State.UNKNOWN, str(error)) for job_id in job_ids}
        return {**found, **self.recorded([job_id for job_id in job_ids if job_id not in found])}

    def recorded(self, job_ids: Sequence[str]) -> dict[str, Status]:
        """What the scheduler's records say of jobs that its queue knows nothing of."""
        command = self.scheduler.accounting_command(job_ids) if job_ids else None
        if command is None:
            return {job_id: Status(State.LOST, "it has left the queue") for job_id in job_ids}
        try:
            records = self.scheduler.parse_accounting(process.run(command, timeout_s=self.timeout_s))
        except SiteError as error:
            reason = f"it has left the queue, and accounting could not be asked ({error})"
            return {job_id: Status(State.UNKNOWN, reason) for job_id in job_ids}
        nowhere = Status(State.LOST, "it has left the queue, and accounting has no record of it")
        return {job_id: records.get(job_id, nowhere) for job_id in job_ids}

    def find(self, token: str) -> list[str] | None:
        """The jobs of this user that were submitted with `token`; None where the scheduler cannot be asked that.

        Raises SiteError when it did not answer.
        """
        command = self.scheduler.find_command(token)
        if command is None:
            return None
        return self.scheduler.parse_found(process.run(command, timeout_s=self.timeout_s), token)

    def cancel(self, job_id: str) -> None:
        """End a job. Raises SiteError when the scheduler could not be asked to."""
        command = self.scheduler.cancel_command(job_id)
        try:
            process.run(command, timeout_s=self.timeout_s).check(f"cancelling job {job_id}")
        finally:
            acted.note(self.scheduler)

    @property
    def can_describe(self) -> bool:
        """Whether the scheduler can be asked about its cluster at all."""
        return type(self.scheduler).cluster_facts is not Scheduler.cluster_facts

    def describe(self) -> ClusterFacts:
        """What the scheduler's commands tell of its cluster. Raises SiteError where they do not."""
        return self.scheduler.cluster_facts(self._told)

    def _told(self, argv: Sequence[str]) -> str:
        return process.run(argv, timeout_s=self.timeout_s).check(f"asking `{shlex.join(argv)}`").stdout

    def shell(self, job_id: str, host: str, argv: Sequence[str], *, terminal: bool) -> int:
        """Run a program on a host of a running job, on the user's terminal; its exit code.

        Where `makes_terminal` is False the program has to make a terminal over there itself. Raises SiteError
        where the scheduler has no way there.
        """
        if self.by_ssh and not self.scheduler.one_machine:
            return process.interact(ssh(host, argv, terminal=terminal))
        command, variables = self.scheduler.shell_command(job_id, host, argv, terminal=terminal)
        return process.interact(command, variables, raw=terminal and not self.makes_terminal)

    @property
    def shell_from_inside(self) -> bool:
        """Whether the job has to start the program of a shell (orchestrator.shells), and `shell` cannot."""
        return self.scheduler.shell_from_inside and not self.by_ssh

    @property
    def makes_terminal(self) -> bool:
        """Whether `shell` gives its program a terminal if it is asked to."""
        return self.by_ssh or self.scheduler.shell_has_terminal
