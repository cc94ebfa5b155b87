"""The client of a site's scheduler. Nothing else runs a scheduler's commands."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from orchestrator import process, schedulers
from orchestrator.errors import SiteError, UserError
from orchestrator.process import NoAnswer
from orchestrator.schedulers.interface import Request, Scheduler
from orchestrator.spec.site import Site
from orchestrator.states import State, Status


def of(site: Site) -> Client:
    """The client of a site's scheduler."""
    return Client(schedulers.get(site.scheduler), site.command_timeout_s)


@dataclass(frozen=True)
class Client:
    """One scheduler and how long each of its commands may take."""

    scheduler: Scheduler
    timeout_s: float

    def submit(self, script: Path, request: Request, cwd: Path | None = None) -> str:
        """Submit `script` from the folder `cwd`; the job's id.

        Raises SiteError when the scheduler refuses, and NoAnswer when there may be a job all the same: `find` then
        tells, by the request's token.
        """
        command = self.submit_argv(script, request)
        said = process.run(command, timeout_s=self.timeout_s, cwd=cwd).check("submitting the job")
        try:
            return self.scheduler.job_id(said.stdout)
        except SiteError as error:
            raise NoAnswer(str(error)) from None

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
        if not job_ids:
            return {}
        try:
            said = process.run(self.scheduler.status_command(job_ids), timeout_s=self.timeout_s)
            found = self.scheduler.parse_status(said)
        except SiteError as error:
            return {job_id: Status(State.UNKNOWN, str(error)) for job_id in job_ids}
        found.update(self._recorded([job_id for job_id in job_ids if job_id not in found]))
        return {job_id: found[job_id] for job_id in job_ids}

    def _recorded(self, job_ids: list[str]) -> dict[str, Status]:
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
        process.run(command, timeout_s=self.timeout_s).check(f"cancelling job {job_id}")
