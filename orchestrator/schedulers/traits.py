"""The differences between schedulers, as values: traits, variables, parts of the job script, queries, ways to hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:  # `status` needs none of these
    from torusrun.orchestrator.base.process import Finished
    from torusrun.orchestrator.place.hosts.tree import Tree
    from torusrun.orchestrator.schedulers.cluster_facts import Ask, ClusterFacts

T = TypeVar("T")


@dataclass(frozen=True)
class Traits:
    """The abilities and limits of a scheduler."""

    one_machine: bool = False  # whether there are no other nodes
    has_arrays: bool = False  # whether a request may be an array, of which some tasks run at once
    reports_all_jobs: bool = False  # whether `status_query` also reports the user's jobs that were not named
    cancels_many: bool = False  # whether the ids of more jobs may follow `cancel_command`
    outlives_hosts: bool = False  # whether jobs continue without lost hosts, also if they do not ask for it
    cannot_exclude: str = "its scheduler cannot leave out hosts"  # why; '' if a request may exclude hosts
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
    elsewhere: tuple[str, ...] = ()  # also select it, but no command gets them: nothing is submitted while one is set


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
    """The queries about the cluster, for `init`, `doctor`, the order of hosts, and the hosts that requests leave out.

    `query_hosts(ask, queue)` returns the names of the hosts of a queue, or of the usual one for None.
    """

    programs: tuple[str, ...] = ()  # any of these on PATH means that the scheduler may be there
    query_facts: Callable[[Ask], ClusterFacts] | None = None  # raises SiteError if the scheduler does not answer
    switches: SwitchSource | None = None
    query_hosts: Callable[[Ask, str | None], tuple[str, ...]] | None = None  # raises SiteError, too


@dataclass(frozen=True)
class Reach:
    """The scheduler's own ways to reach the hosts of a job; None for one that it lacks.

    `shell_command(job_id, host, argv, terminal)` is for a login node: it runs `argv` on a host of a running job, on
    the user's terminal if `terminal`. The others are for the job itself. `remote_command(host, command)` runs the
    shell `command` on another of its hosts, and ends with it. `broadcast_commands(environment, ready, source,
    destination)` copy a file to all its nodes after `ready` has run once on each.
    """

    shell_command: Callable[[str, str, Sequence[str], bool], list[str]] | None = None
    remote_command: Callable[[str, str], list[str]] | None = None
    broadcast_commands: Callable[[Mapping[str, str], Sequence[str], Path, Path], list[list[str]]] | None = None
    for_every_mpi: bool = False  # whether mpirun needs `remote_command` unless the site says ssh

    @property
    def from_inside(self) -> bool:
        """Whether the job itself must start a user's shell (orchestrator.beside.shells)."""
        return self.shell_command is None and self.remote_command is not None
