"""The interface of a scheduler: pure functions from values to text and back, and all differences as values."""

from __future__ import annotations

import os
import socket
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.base.states import Status
from torusrun.orchestrator.place.hosts.same_host import this_host

if TYPE_CHECKING:  # `status` needs none of these
    from torusrun.orchestrator.base.process import Finished
    from torusrun.orchestrator.place.hosts.model import Tree
    from torusrun.orchestrator.schedulers.cluster_facts import Ask, ClusterFacts

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """The request of a job to its scheduler."""

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
    ask: tuple[str, ...] = ()  # a site's own words for its nodes, in place of the scheduler's usual words
    extra: tuple[str, ...] = ()  # further directives
    submit_args: tuple[str, ...] = ()  # arguments of the submit command itself
    after: tuple[str, ...] = ()  # jobs that must succeed before this job starts
    after_any: tuple[str, ...] = ()  # jobs that must end before this job starts
    after_begun: tuple[str, ...] = ()  # jobs that should begin before this job, if the scheduler has a word for that
    exclude: tuple[str, ...] = ()  # hosts that the job must not get
    array: int = 0  # the number of tasks, which are numbered from 0
    parallel: int = 0  # how many of them run at once; 0: as many as have room
    lives_on: bool = False  # whether the job continues without the hosts that it loses
    token: str = ""  # a unique name for the job in the queue, by which `find` knows it; '' for `name` alone
    gpu_type: str | None = None
    qos: str | None = None
    constraint: str | None = None
    reservation: str | None = None
    exclusive: bool | None = None
    licenses: tuple[str, ...] = ()  # as NAME or NAME:NUMBER
    secrets: tuple[str, ...] = ()  # the submit command must not inherit them: Slurm would keep them, a local job have

    @property
    def called(self) -> str:
        """The job's name in the queue. Every scheduler shows it, and can find jobs by it."""
        return self.token or self.name


@dataclass(frozen=True)
class Traits:
    """The abilities and limits of a scheduler."""

    one_machine: bool = False  # whether there are no other nodes
    has_arrays: bool = False  # whether a request may be an array, of which some tasks run at once
    cancels_many: bool = False  # whether the ids of more jobs may follow `cancel_command`
    outlives_hosts: bool = False  # whether jobs continue without lost hosts, also if they do not ask for it
    cannot_exclude: str = "its scheduler cannot leave out hosts"  # why; '' if a request may exclude hosts
    # the keys of `request` for which its directives have words, and for the others what users write instead
    says: frozenset[str] = frozenset({"memory", "memory_per_rank", "cpus_per_rank", "gpus", "gpu_type", "options"})
    instead: Mapping[str, str] = field(default_factory=dict)
    asked_by: frozenset[str] = frozenset({"cpus_per_rank", "gpus", "gpu_type"})  # of `says`: void if a site has `ask`
    silent: str = ""  # matches the submit command's error if its server did not answer, and so a job may exist


@dataclass(frozen=True)
class Variables:
    """The environment variables of a job."""

    job: str  # has the job's id
    array: str = ""  # has the id of an array, if that is not in `job`
    task: str = ""  # has the number of a task of an array, from `first_task` on
    first_task: int = 0
    scratch: tuple[str, ...] = ()  # any of these may name the job's own folder on a node; used before TMPDIR
    cluster: tuple[str, ...] = ()  # on a login node: select the cluster that the commands use
    host: str = ""  # has the scheduler's name of the host that a process of the job is on
    elsewhere: tuple[str, ...] = ()  # also select it, but no command gets them: while any is set nothing is submitted


@dataclass(frozen=True)
class JobScript:
    """The scheduler's own part of a job's script."""

    head: tuple[str, ...] = ()  # shell lines below the directives
    sends_output: bool = False  # whether the script itself must redirect its output to the request's files


@dataclass(frozen=True)
class Query(Generic[T]):
    """A command, and the reader of its answer. `read` raises SiteError if it failed, which says nothing about a job."""

    command: Sequence[str]
    read: Callable[[Finished], T]


@dataclass(frozen=True)
class SwitchSource:
    """`query` gets the text by commands, unless the site names a file that holds it; `tree` reads the text.

    Both also take the site's topology.attribute, whose default is `attribute`. They raise SiteError.
    """

    tree: Callable[[str, str], Tree]
    query: Callable[[Ask, str], str]
    attribute: str = ""


@dataclass(frozen=True)
class ClusterQueries:
    """The queries about the cluster: for `init`, `doctor`, the order of hosts, and hosts that requests leave out."""

    programs: tuple[str, ...] = ()  # if any of these is on PATH, this machine may have the scheduler
    query_facts: Callable[[Ask], ClusterFacts] | None = None  # raises SiteError if the scheduler does not answer
    switches: SwitchSource | None = None
    query_hosts: Callable[[Ask, str | None], tuple[str, ...]] | None = None  # of a queue, None: the usual; the same


@dataclass(frozen=True)
class Reach:
    """The scheduler's own ways to reach the hosts of a job; None for a way that it lacks."""

    # (job_id, host, argv, terminal): on a login node, run `argv` on a host of a running job, on the user's terminal
    shell_command: Callable[[str, str, Sequence[str], bool], list[str]] | None = None
    # (host, command): in the job, run the shell `command` on another of its hosts, and end with it
    remote_command: Callable[[str, str], list[str]] | None = None
    for_every_mpi: bool = False  # whether mpirun needs `remote_command` unless the site says ssh

    @property
    def from_inside(self) -> bool:
        """Whether the job itself must start a user's shell (orchestrator.beside.shells)."""
        return self.shell_command is None and self.remote_command is not None


class Scheduler(ABC):
    """A scheduler. No method starts a process or reads the clock, and only `hosts` reads a file."""

    name: ClassVar[str]
    variables: ClassVar[Variables]
    traits: ClassVar[Traits] = Traits()
    script: ClassVar[JobScript] = JobScript()
    cluster: ClassVar[ClusterQueries] = ClusterQueries()
    reach: ClassVar[Reach] = Reach()

    def refuses(self, value: str) -> str | None:
        """Why no directive can carry `value` as one word, naming the character; None if a directive can."""
        return None

    def refuses_option(self, option: str) -> str | None:
        """Why a site's own words for the scheduler must not contain `option`; None if they may."""
        return None

    def word(self, key: str, value: str) -> str:
        """`value`, which is that of `key`. Raises UserError if no directive can carry it as one word."""
        reason = "begins with '-', as an option does" if value.startswith("-") else self.refuses(value)
        if reason:
            raise UserError(f"'{key}': {value!r} {reason}")
        return value

    @abstractmethod
    def directives(self, request: Request) -> list[str]:
        """The lines at the head of the script that make the request."""

    @abstractmethod
    def submit_command(self, script: Path, request: Request) -> list[str]:
        """The command that submits `script`."""

    def in_turn_args(self, name: str, before: str) -> list[str]:
        """The arguments of the submit command by which a job of this name begins after any end of the job `before`.

        They override the script's directives. Raises SiteError if there are none.
        """
        raise SiteError(f"{self.name} has no option to start a job after the end of another one")

    def ask_command(self, request: Request) -> list[str] | None:
        """The command that reads a script, reports whether its job could run, and submits nothing; None: no command."""
        return None

    def start_in(self, answer: str) -> float | None:
        """The estimated start in an answer to `ask_command`, of time.time(); None if it has none."""
        return None

    def room_command(self, request: Request) -> list[str] | None:
        """As `ask_command`, for a command that also fails if the job could not start now; None: no command."""
        return None

    def start_query(self, job_ids: Sequence[str]) -> Query[dict[str, float]] | None:
        """One query for the estimated starts of waiting jobs, of time.time(); None without such a query.

        Its answer lacks the jobs for which there is no estimate.
        """
        return None

    @abstractmethod
    def job_id(self, stdout: str) -> str:
        """The job's id, from the output of the submit command. Raises SiteError if there is none."""

    def job_elsewhere(self, stdout: str) -> str:
        """Where the submit command says that its job is, in words, if that may be another queue; '' if it is not."""
        return ""

    def task_id(self, job_id: str, index: int) -> str:
        """The id of task `index` (from 0) of the array `job_id` in the status command's output."""
        raise SiteError(f"{self.name} has no job arrays")

    def awaitable(self, job_id: str) -> str:
        """The job that another job names to wait for `job_id`: the array of a task if no job can wait for one task."""
        return job_id

    def array_of(self, task_id: str) -> str:
        """The id of the array of a task, as the submit command printed it."""
        return self.awaitable(task_id)

    def own_job(self, environment: Mapping[str, str]) -> str:
        """Inside a job: its id, as the submit command printed it; that of the array for a task."""
        own = self.variables
        return environment.get(own.array) or environment.get(own.job) or "unknown"

    def own_task(self, environment: Mapping[str, str]) -> int | None:
        """Inside a job: the number (from 0) of the task of an array; None without an array."""
        number = environment.get(self.variables.task, "")  # outside arrays Grid Engine says "undefined"
        return int(number) - self.variables.first_task if number.isdigit() else None

    def own_name(self, environment: Mapping[str, str]) -> str:
        """Inside a job: its id; for a task of an array that of the task."""
        job, task = self.own_job(environment), self.own_task(environment)
        return job if task is None else self.task_id(job, task)

    def cancel_tasks_command(self, job_id: str, first: int, last: int) -> list[str]:
        """The command that ends the tasks `first` to `last` (from 0) of the array `job_id`."""
        raise SiteError(f"{self.name} has no job arrays")

    @abstractmethod
    def status_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]]:
        """One query for the states of all these jobs; its answer lacks the jobs that are not in the queue."""

    def accounting_query(self, job_ids: Sequence[str]) -> Query[dict[str, Status]] | None:
        """One query for the ends of jobs that the status query did not report; None if there are no records."""
        return None

    def find_query(self, token: str) -> Query[list[str]] | None:
        """One query for the ids of the user's jobs with this token, after a lost answer; None without such a query."""
        return None

    def host_query(self, host: str) -> Query[str] | None:
        """One query for why a host is lost, in the scheduler's words; '' if it is not. None without such a query."""
        return None

    @abstractmethod
    def cancel_command(self, job_id: str) -> list[str]:
        """The command that ends a job."""

    def after_loss_command(self, job_id: str, lost: int) -> list[str] | None:
        """The command after which another task of an array may begin although the first host of task `job_id` is gone.

        `lost` tasks of the array have lost theirs, `job_id` included. None: the command that ends any job does it.
        """
        return None

    def leave_out_command(self, job_id: str, tasks: tuple[int, int] | None, request: Request) -> list[str] | None:
        """The command after which a waiting job, or the waiting `tasks` (first, last, from 0) of an array, gets no host
        of `request`'s `exclude`. `request` is that of the job, but for these hosts. None: it cannot be changed.
        """
        return None

    @abstractmethod
    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        """Inside a job: its allocated hosts, in the scheduler's order, each once or once per rank.

        Raises SiteError if they cannot be determined.
        """


def hosts_of(scheduler: Scheduler) -> list[str]:
    """The job's hosts in the scheduler's order, each once. Raises SiteError if they cannot be determined."""
    own = os.environ.get(scheduler.variables.host) or socket.gethostname()
    return list(dict.fromkeys(scheduler.hosts(os.environ, own)))


def this_host_of(scheduler: Scheduler, hosts: list[str]) -> str:
    """This host by its name in `hosts`."""
    return this_host(hosts, os.environ.get(scheduler.variables.host, ""))
