"""What a scheduler is to torusrun: a handful of pure functions from values to text and from text to values."""

from __future__ import annotations

import math
import re
import shlex
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from orchestrator.base.errors import SiteError, UserError
from orchestrator.base.process import Finished
from orchestrator.base.states import Status
from orchestrator.schedulers.cluster_facts import Ask, ClusterFacts
from orchestrator.schedulers.switch_source import SwitchSource
from orchestrator.spec.kinds import CONTROL
from orchestrator.spec.problems import shown


@dataclass(frozen=True)
class Request:
    """What a job asks its scheduler for.

    `ask` are a site's own words for its nodes, in place of the scheduler's usual ones; `submit_args` go to the submit
    command itself. `after` are jobs that must have ended well before, `after_any` jobs that must have ended. `exclude`
    are hosts that the job must not be given. An `array` of N tasks numbers them from 0; `parallel` of them run at once,
    0 for as many as there is room for. `token` is what the job is called in the queue when it has to be found there
    again, and unique then; '' for the name alone.
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
    after_any: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    array: int = 0
    parallel: int = 0
    token: str = ""
    gpu_type: str | None = None

    @property
    def called(self) -> str:
        """The job's name in the queue, which every scheduler shows and can be asked for."""
        return self.token or self.name


def filled(
    texts: Sequence[str], *, nodes: int, ranks_per_node: int, cpus_per_rank: int, gpus: int, account: str | None
) -> tuple[str, ...]:
    """A site's own words with the numbers of a job in the places that `spec.kinds.PLACEHOLDERS` names.

    Raises UserError for an account that would not stay one word there.
    """
    if account and any("{account}" in text for text in texts) and (reason := not_plain(account)):
        raise UserError(f"'account': {account!r} {reason}")
    words = {
        "nodes": nodes,
        "ranks": nodes * ranks_per_node,
        "ranks_per_node": ranks_per_node,
        "cpus": ranks_per_node * cpus_per_rank,
        "cpus_per_rank": cpus_per_rank,
        "gpus": gpus,
        "account": account,
    }
    return tuple(text.format_map(words) for text in texts)


def not_plain(account: str) -> str | None:
    """Why `account` cannot be filled into a site's own words, whose quotes and commas nobody knows; None if it can."""
    if re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.@/-]*", account):
        return None
    return (
        "is filled into the site's own words ({account}), and so may hold letters, digits and '_.@/-' only, "
        "beginning with a letter or digit"
    )


def directives(prefix: str, options: Sequence[str], longest_bytes: int) -> list[str]:
    """The lines of a script that ask for `options`. Raises UserError for one that would not be one whole line."""
    for option in options:
        if re.search(f"[{CONTROL}]", option):
            raise UserError(f"{option!r}: a directive is one line, without line breaks and control characters")
        if len(option.encode()) > longest_bytes:
            raise UserError(f"{shown(option)}: this is too long for a directive, which may have {longest_bytes} bytes")
    return [f"{prefix} {option}" for option in options]


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
    """A scheduler. No function here starts a process or reads the clock, and only `hosts` reads a file."""

    name: ClassVar[str]
    programs: ClassVar[tuple[str, ...]] = ()  # any of these on PATH says that the scheduler may be there
    switches: ClassVar[SwitchSource | None] = None  # above its nodes
    job_variable: ClassVar[str]  # what holds the job's id in the job's environment
    head: ClassVar[tuple[str, ...]] = ()  # shell lines of a job's script below its directives
    silent: ClassVar[str] = ""  # a pattern of what the submit command writes when its server took the job or did not
    own_output: ClassVar[bool] = False  # whether the script has to send its output to the request's files itself
    scratch_variables: ClassVar[tuple[str, ...]] = ()  # what may hold the job's own folder on a node, before TMPDIR
    told_variables: ClassVar[tuple[str, ...]] = ()  # what only the first node of a job is told, and all tasks need
    one_machine: ClassVar[bool] = False  # whether there are no other nodes
    shell_has_terminal: ClassVar[bool] = True  # whether `shell_command` gives its program a terminal if asked to
    tells_all_jobs: ClassVar[bool] = False  # whether the status command tells of its user's jobs that were not named
    cancels_many: ClassVar[bool] = False  # whether the ids of more jobs may follow in `cancel_command`
    shell_from_inside: ClassVar[bool] = False  # whether only `remote_command`, inside the job, leads to its hosts
    lends_shell: ClassVar[bool] = False  # whether mpirun needs `remote_command` unless the site says ssh
    cannot_exclude: ClassVar[str] = "its scheduler cannot leave out hosts"  # why; '' where a request may exclude some

    def refuses(self, value: str) -> str | None:
        """Why no directive can carry `value` as one word, naming the character; None where one can."""
        return None

    def word(self, key: str, value: str) -> str:
        """`value`, which is that of `key`. Raises UserError where a directive cannot carry it as one word."""
        reason = "begins with '-', as an option does" if value.startswith("-") else self.refuses(value)
        if reason:
            raise UserError(f"'{key}': {value!r} {reason}")
        return value

    @abstractmethod
    def directives(self, request: Request) -> list[str]:
        """The lines at the head of the script that ask for what the job needs."""

    @abstractmethod
    def submit_command(self, script: Path, request: Request) -> list[str]:
        """The command that submits `script`."""

    def ask_command(self, request: Request) -> list[str] | None:
        """The command that reads a script and says whether its job could run, and submits nothing; None without one."""
        return None

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

    def find_command(self, token: str) -> list[str] | None:
        """One command that tells which jobs of this user have a token, for a submission whose answer was lost.

        None where the scheduler cannot be asked that.
        """
        return None

    def parse_found(self, said: Finished, token: str) -> list[str]:
        """The ids of the jobs in what that command said. Raises SiteError when it failed to answer."""
        return []

    @abstractmethod
    def cancel_command(self, job_id: str) -> list[str]:
        """The command that ends a job."""

    @abstractmethod
    def hosts(self, environment: Mapping[str, str], this_host: str) -> list[str]:
        """Inside a job: the hosts it was given, in the scheduler's order, each once or once per rank.

        Raises SiteError when they are not told.
        """

    def shortfall(self, environment: Mapping[str, str], cpus: int) -> str:
        """Inside a job: what seems to be missing of the `cpus` cores that its ranks use together; '' for nothing."""
        return ""

    def cluster_facts(self, ask: Ask) -> ClusterFacts:
        """What the scheduler's commands tell of its cluster. Raises SiteError where they do not."""
        raise SiteError(f"torusrun has no query for the cluster of {self.name}")

    @property
    def has_remote_shell(self) -> bool:
        """Whether `remote_command` is there."""
        return type(self).remote_command is not Scheduler.remote_command

    def broadcast_commands(
        self, environment: Mapping[str, str], ready: Sequence[str], source: Path, destination: Path
    ) -> list[list[str]]:
        """Inside a job: what copies a file to `destination` on all its nodes, `ready` having run once on each.

        Nothing where the scheduler has no way: then every node copies for itself.
        """
        return []

    def remote_command(self, host: str, command: str) -> list[str]:
        """Inside a job: what runs the shell `command` on another of its hosts, for sites that forbid ssh.

        It lasts as long as the command does. Raises SiteError where the scheduler has no such thing.
        """
        raise SiteError(f"{self.name} has no remote shell of its own")

    def shell_command(
        self, job_id: str, host: str, argv: Sequence[str], *, terminal: bool
    ) -> tuple[list[str], dict[str, str]]:
        """On a login node: what runs `argv` on a host of a running job, and the variables that this needs.

        With `terminal` it has the user's terminal. Raises SiteError where the scheduler has no such thing.
        """
        raise SiteError(f"{self.name} has no way into a running job; if the nodes have ssh, set remote_shell: ssh")


def ssh(host: str, argv: Sequence[str], *, terminal: bool) -> list[str]:
    """What runs `argv` on another host where there is ssh, whose shell over there reads one line."""
    return ["ssh", *(["-t"] if terminal else []), "--", host, shlex.join(argv)]
