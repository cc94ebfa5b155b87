"""What a scheduler tells of its cluster: queues with their limits, kinds of nodes, ways to ask for them, accounts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orchestrator.base.errors import SiteError

# Runs one of the scheduler's commands; what it printed. Raises SiteError where it failed or did not answer.
Ask = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class NodeKind:
    """Nodes that are alike, as the scheduler counts them. None is what it does not tell."""

    nodes: int
    cpus: int | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    gpu_type: str | None = None


@dataclass(frozen=True)
class Queue:
    """A partition or queue. `time_s` and `nodes` are the limits of a job, None without one or where nobody tells.

    `closed` says why it takes no jobs, '' where it does. `environments` are the names of its ways to ask for nodes.
    """

    name: str
    kinds: tuple[NodeKind, ...] = ()
    time_s: float | None = None
    nodes: int | None = None
    is_default: bool = False
    closed: str = ""
    environments: tuple[str, ...] = ()

    @property
    def kind(self) -> NodeKind | None:
        """The kind that most of its nodes are of; of those with GPUs where there are any."""
        with_gpus = [kind for kind in self.kinds if kind.gpus]
        return max(with_gpus or self.kinds, key=lambda kind: kind.nodes, default=None)

    @property
    def all_nodes(self) -> int:
        """How many nodes it has."""
        return sum(kind.nodes for kind in self.kinds)


@dataclass(frozen=True)
class Environment:
    """A way to ask for nodes that has a name, as Grid Engine's parallel environments; `slots` is what a host gives.

    `slots` is None where a job's slots are not the same number on each of its hosts.
    """

    name: str
    slots: int | None


@dataclass(frozen=True)
class ClusterFacts:
    """What one scheduler tells. `commands` names the command that told each part: queues, nodes, topology, accounts.

    `topology` are the keys of a site's topology, None where the scheduler knows no switches. `launcher` is what starts
    ranks there, None where it is the MPI of the machine. `asks_memory` says that a job has to ask for memory, since its
    default may be too little.
    """

    version: str
    queues: tuple[Queue, ...] = ()
    cluster: str | None = None
    environments: tuple[Environment, ...] = ()
    resources: frozenset[str] = frozenset()
    topology: Mapping[str, Any] | None = None
    accounts: tuple[str, ...] = ()
    needs_account: bool = False
    launcher: str | None = None
    asks_memory: bool = False
    commands: Mapping[str, str] = field(default_factory=dict)


def optional(ask: Ask, argv: Sequence[str]) -> str:
    """What a command printed; '' where it failed, since a site may forbid it."""
    try:
        return ask(argv)
    except SiteError:
        return ""


def duration_s(text: str) -> float | None:
    """Slurm's [DAYS-]HH:MM:SS, MM:SS or minutes, and HH:MM:SS of the others, as seconds; None for no limit."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(?:(\d+):)?(\d+):)?(\d+)", text.strip())
    if not match:
        return None
    days, hours, minutes, last = (int(part or 0) for part in match.groups())
    if match[3] is None:  # minutes alone, or days and hours
        return days * 86400.0 + last * (3600.0 if match[1] else 60.0)
    if match[1] and match[2] is None:  # DAYS-HH:MM
        return days * 86400.0 + minutes * 3600.0 + last * 60.0
    return days * 86400.0 + hours * 3600.0 + minutes * 60.0 + last


def counted(kinds: Iterable[NodeKind]) -> tuple[NodeKind, ...]:
    """Kinds of one node each, put together where they are alike."""
    count = Counter(kinds)
    return tuple(
        NodeKind(number, kind.cpus, kind.memory_bytes, kind.gpus, kind.gpu_type) for kind, number in count.items()
    )
