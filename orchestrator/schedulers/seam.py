"""What a scheduler is to torusrun: a handful of pure functions from values to text and from text to values."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from orchestrator.process import Finished
from orchestrator.states import Status


@dataclass(frozen=True)
class Request:
    """What a job asks its scheduler for."""

    name: str
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int
    gpus_per_node: int
    memory_bytes: int | None
    time_s: float
    queue: str | None
    account: str | None
    extra: tuple[str, ...]
    stdout: Path
    stderr: Path


class Scheduler(ABC):
    """The seam. No function here starts a process, reads the clock or touches a file."""

    name: ClassVar[str]
    template: ClassVar[str]

    @abstractmethod
    def directives(self, request: Request) -> list[str]:
        """The lines at the head of the script that ask for what the job needs."""

    @abstractmethod
    def submit_command(self, script: Path) -> list[str]:
        """The command that submits `script`."""

    @abstractmethod
    def job_id(self, stdout: str) -> str:
        """The job's id, from what the submit command printed. Raises SiteError when there is none."""

    @abstractmethod
    def status_command(self, job_ids: Sequence[str]) -> list[str]:
        """One command that tells the states of all these jobs."""

    @abstractmethod
    def parse_status(self, said: Finished) -> dict[str, Status]:
        """The states in what the status command said; absent jobs are absent.

        Raises SiteError when it failed to answer, which says nothing about any job.
        """

    def accounting_command(self, job_ids: Sequence[str]) -> list[str] | None:
        """One command that tells how these jobs ended, or None where the scheduler keeps no such records."""
        return None

    def parse_accounting(self, said: Finished) -> dict[str, Status]:
        """The ends in what the accounting command said. Raises SiteError when it failed to answer."""
        return {}

    @abstractmethod
    def cancel_command(self, job_id: str) -> list[str]:
        """The command that ends a job."""

    @abstractmethod
    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        """Inside a job: the hosts it was given, in the scheduler's order. Raises SiteError when they are not told."""
