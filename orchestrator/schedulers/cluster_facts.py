"""A cluster as its scheduler reports it: queues with limits, kinds of nodes, ways to ask for nodes, accounts."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from torusrun.orchestrator.base.errors import SiteError

# Runs one of the scheduler's commands and returns its output. Raises SiteError if it failed or did not answer.
Ask = Callable[[Sequence[str]], str]


@dataclass(frozen=True)
class NodeKind:
    """Nodes that are alike, as the scheduler counts them. None: the scheduler does not report it."""

    nodes: int
    cpus: int | None = None
    memory_bytes: int | None = None
    gpus: int = 0
    gpu_type: str | None = None


@dataclass(frozen=True)
class Queue:
    """A partition or queue."""

    name: str
    kinds: tuple[NodeKind, ...] = ()
    time_s: float | None = None  # the limit of a job, None if there is none or it is unknown
    nodes: int | None = None  # the same
    is_default: bool = False
    closed: str = ""  # why it takes no jobs; '' if it does
    environments: tuple[str, ...] = ()  # the names of its ways to ask for nodes
    free: int | None = None  # nodes without a job, None if the scheduler does not say
    least: Mapping[str, float] = field(default_factory=dict)  # of a job in all: time_s, nodes, cpus, gpus, memory_bytes
    most: Mapping[str, float] = field(default_factory=dict)  # the same
    ends: tuple[Queue, ...] = ()  # of a queue that passes its jobs on: those that may take them

    @property
    def kind(self) -> NodeKind | None:
        """The kind of most of its nodes; if some nodes have GPUs, of most of those."""
        with_gpus = [kind for kind in self.kinds if kind.gpus]
        return max(with_gpus or self.kinds, key=lambda kind: kind.nodes, default=None)

    @property
    def all_nodes(self) -> int:
        return sum(kind.nodes for kind in self.kinds)


@dataclass(frozen=True)
class ClusterFacts:
    """One scheduler's report."""

    version: str
    queues: tuple[Queue, ...] = ()
    cluster: str | None = None
    environments: Mapping[str, int] = field(default_factory=dict)  # of Grid Engine, with their slots per host
    resources: frozenset[str] = frozenset()
    topology: Mapping[str, Any] | None = None  # the keys of a site's topology, None if it knows no switches
    accounts: tuple[str, ...] = ()
    needs_account: bool = False
    launcher: str | None = None  # None if it is the MPI of the machine
    asks_memory: bool = False  # whether a job must ask for memory, since the default may be too little
    commands: Mapping[str, str] = field(default_factory=dict)  # by part: queues, nodes, topology, accounts
    reservations: Mapping[str, Queue] | None = None  # by name, if each has a queue of its own, and they are known
    remarks: tuple[str, ...] = ()  # what was not understood or did not answer, with the text

    @property
    def with_reserved(self) -> tuple[Queue, ...]:
        """The queues, and those of reservations."""
        return (*self.queues, *(self.reservations or {}).values())


def optional(ask: Ask, argv: Sequence[str]) -> str:
    """The output of a command; '' if it failed, since a site may forbid it."""
    try:
        return ask(argv)
    except SiteError:
        return ""


def size_bytes(text: str) -> int | None:
    """The bytes of a size such as 64gb, 7532kb or 23.5G; None for other text."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([kmgt]?)b?", text.strip().lower())
    return int(float(match[1]) * 1024 ** " kmgt".index(match[2] or " ")) if match else None


def duration_s(text: str) -> float | None:
    """The seconds of Slurm's [DAYS-]HH:MM:SS, MM:SS or minutes, or HH:MM:SS of the others; None for no limit."""
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
    """The kinds of single nodes, with equal kinds merged and counted."""
    return tuple(replace(kind, nodes=number) for kind, number in Counter(kinds).items())
