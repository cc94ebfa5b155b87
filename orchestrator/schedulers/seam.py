"""What a scheduler is to torusrun: a handful of pure functions from values to text and from text to values."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from orchestrator.errors import SiteError
from orchestrator.process import Finished
from orchestrator.states import Status


@dataclass(frozen=True)
class Request:
    """What a job asks its scheduler for.

    `ask` are a site's own words for its nodes, in place of the scheduler's usual ones; `submit_args` go to the submit
    command itself. `after` are jobs that must have ended well before. An `array` of N tasks numbers them from 0;
    `parallel` of them run at once, 0 for as many as there is room for.
    """

    name: str
    nodes: int
    ranks_per_node: int
    cpus_per_rank: int
    gpus_per_node: int
    memory_bytes: int | None
    time_s: float
    queue: str | None
    account: str | None
    stdout: Path
    stderr: Path
    ask: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()
    submit_args: tuple[str, ...] = ()
    after: tuple[str, ...] = ()
    array: int = 0
    parallel: int = 0


def filled(
    texts: Sequence[str], *, nodes: int, ranks_per_node: int, cpus_per_rank: int, gpus: int, account: str | None
) -> tuple[str, ...]:
    """A site's own words with the numbers of a job in the places that `spec.kinds.PLACEHOLDERS` names."""
    words = {
        "nodes": nodes,
        "ranks": nodes * ranks_per_node,
        "ranks_per_node": ranks_per_node,
        "cpus": ranks_per_node * cpus_per_rank,
        "gpus": gpus,
        "account": account,
    }
    return tuple(text.format_map(words) for text in texts)


def clock(seconds: float) -> str:
    """A time limit as HH:MM:SS, rounded up; hours may exceed 24."""
    minutes, rest = divmod(math.ceil(seconds), 60)
    return f"{minutes // 60:02}:{minutes % 60:02}:{rest:02}"


def listed_hosts(path: str) -> list[str]:
    """The first words of a file's lines, in order and each once. Raises SiteError when there are none to be read."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
    except OSError as error:
        raise SiteError(f"{path}: the list of the job's hosts cannot be read: {error.strerror}") from None
    found = dict.fromkeys(line.split()[0] for line in lines if line.strip())
    if not found:
        raise SiteError(f"{path}: the list of the job's hosts is empty")
    return list(found)


class Scheduler(ABC):
    """The seam. No function here starts a process or reads the clock, and only `hosts` reads a file."""

    name: ClassVar[str]
    template: ClassVar[str]
    job_variable: ClassVar[str]  # what holds the job's id in the job's environment
    lends_shell: ClassVar[bool] = False  # whether mpirun needs `remote_command` unless the site says ssh

    @abstractmethod
    def directives(self, request: Request) -> list[str]:
        """The lines at the head of the script that ask for what the job needs."""

    @abstractmethod
    def submit_command(self, script: Path, request: Request) -> list[str]:
        """The command that submits `script`."""

    @abstractmethod
    def job_id(self, stdout: str) -> str:
        """The job's id, from what the submit command printed. Raises SiteError when there is none."""

    def task_id(self, job_id: str, index: int) -> str:
        """The id, in what the status command says, of task `index` (from 0) of the array `job_id`."""
        raise SiteError(f"{self.name} has no job arrays")

    @abstractmethod
    def status_command(self, job_ids: Sequence[str]) -> list[str]:
        """One command that tells the states of all these jobs."""

    @abstractmethod
    def parse_status(self, said: Finished) -> dict[str, Status]:
        """The states in what the status command said; absent jobs are absent.

        Raises SiteError when it failed to answer, which says nothing about any job.
        """

    def accounting_command(self, job_ids: Sequence[str]) -> list[str] | None:
        """One command that tells of jobs that the status command did not; None where the scheduler keeps no records."""
        return None

    def parse_accounting(self, said: Finished) -> dict[str, Status]:
        """The ends in what the accounting command said. Raises SiteError when it failed to answer."""
        return {}

    @abstractmethod
    def cancel_command(self, job_id: str) -> list[str]:
        """The command that ends a job."""

    @abstractmethod
    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        """Inside a job: the hosts it was given, in the scheduler's order, each once or once per rank.

        Raises SiteError when they are not told.
        """

    def remote_command(self, host: str, command: str) -> list[str]:
        """Inside a job: what runs the shell `command` on another of its hosts, for sites that forbid ssh.

        It lasts as long as the command does. Raises SiteError where the scheduler has no such thing.
        """
        raise SiteError(f"{self.name} has no remote shell of its own")
