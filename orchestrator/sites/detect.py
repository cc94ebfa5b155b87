"""Finds the schedulers that this machine can reach, and the known clusters: how each is recognised."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.keys.load import SHIPPED
from torusrun.orchestrator.keys.shared import Software
from torusrun.orchestrator.keys.site import ContainerSettings, Node
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts
from torusrun.orchestrator.sites.choices import Certainty, Setting
from torusrun.training.recipe.files import CERTAINTIES

ASKING_S = 30.0
LOCAL = "local"
GENERIC = "generic"  # the name of every other cluster for --cluster
# The parts of a site whose values are written one by one.
SECTIONS: dict[str, type[Any]] = {"node": Node, "container": ContainerSettings, "environment": Software}


@dataclass(frozen=True)
class Reached:
    """A scheduler, and its answers about its cluster."""

    name: str
    facts: ClusterFacts

    @property
    def one_machine(self) -> bool:
        """Whether this machine is the whole cluster."""
        return schedulers.get(self.name).traits.one_machine


def named_scheduler(name: str) -> Reached:
    """The scheduler that the user named. Raises SiteError if it does not answer, UserError for an unknown name."""
    if name not in schedulers.KNOWN:
        raise UserError(f"--scheduler: {schedulers.unknown(name)}")
    return Reached(name, Client(schedulers.get(name), ASKING_S).describe())


def reachable(say: Callable[[str], None]) -> list[Reached]:
    """The schedulers whose programs are on PATH and answer; this machine if no scheduler's program is on PATH.

    Raises SiteError if there are programs but no scheduler answers. A login node whose scheduler is down must not count
    as a machine without one: Slurm gives the same answer there as on a machine outside every cluster.
    """
    found, silent = [], []
    for name in schedulers.KNOWN:
        if not which(*schedulers.get(name).cluster.programs):
            continue
        say(f"asking {name} about its queues and nodes")
        try:
            found.append(named_scheduler(name))
        except SiteError as error:
            silent.append(f"{name}: {error}")
    if silent and not found:
        raise SiteError(
            f"no scheduler answers, so no site is written: {'; '.join(silent)}; try again when one answers, or "
            f"use only this machine with --scheduler {LOCAL}"
        )
    for why in silent:
        say(f"left out: {why}")
    return found or [named_scheduler(LOCAL)]


FOLDER = Path(__file__).parent / "known"


class Recognition(Enum):
    """How certain it is that a login node belongs to a known cluster."""

    NONE = "no"
    POSSIBLE = "its queues and resources have the same names, and nothing else is known"
    CERTAIN = "it has the name of a login node, or its queues and its nodes agree"


@dataclass(frozen=True)
class KnownCluster:
    """A cluster's data file. `marks` give the certainty and the source of each key of the site."""

    name: str
    title: str
    scheduler: str
    hosts: str
    all_of: frozenset[str]
    account: str
    values: dict[str, Any]
    marks: dict[str, tuple[str, ...]]

    def settings(self) -> Iterator[Setting]:
        """The values of its shipped site, each with its source."""
        for key, value in self.values.items():
            certainty, source, *note = self.marks[key]
            extra = f", {note[0]}" if note else ""
            words = source if certainty == "memory" else f"{source} ({certainty})"
            yield Setting(key, value, f"{words}{extra}", Certainty.KNOWN)

    def recognition(
        self, scheduler: str, hosts: Iterable[str], names: frozenset[str], gpus: frozenset[int]
    ) -> Recognition:
        """How certain the match is, by the login node's names, the queues and resources, and the nodes.

        `gpus` are the known numbers of GPUs per node. Another cluster may have the same names of queues, so names alone
        prove nothing; nodes with other numbers of GPUs belong to another cluster.
        """
        if scheduler != self.scheduler:
            return Recognition.NONE
        if any(re.fullmatch(self.hosts, host) for host in hosts):
            return Recognition.CERTAIN
        if not self.all_of <= names or (gpus and self.values["node.gpus"] not in gpus):
            return Recognition.NONE
        return Recognition.CERTAIN if gpus else Recognition.POSSIBLE


@cache
def clusters() -> dict[str, KnownCluster]:
    return {path.stem: _load(path) for path in sorted(FOLDER.glob("*.yaml"))}


def recognised(
    scheduler: str, hosts: Iterable[str], names: Iterable[str], gpus: Iterable[int] = ()
) -> dict[str, Recognition]:
    """The clusters to which a login node with these host names, queues and resources, and nodes may belong."""
    signs = tuple(hosts), frozenset(names), frozenset(gpus)
    found = {name: cluster.recognition(scheduler, *signs) for name, cluster in clusters().items()}
    return {name: evidence for name, evidence in found.items() if evidence is not Recognition.NONE}


def flat(site: dict[str, Any]) -> dict[str, Any]:
    """A site's values under dotted keys."""
    found: dict[str, Any] = {}
    for key, value in site.items():
        if key in SECTIONS:
            found |= {f"{key}.{inner}": held for inner, held in value.items()}
        else:
            found[key] = value
    return found


def _load(path: Path) -> KnownCluster:
    held = yaml.safe_load(path.read_text(encoding="utf-8"))
    site = yaml.safe_load((SHIPPED / f"{held['site']}.yaml").read_text(encoding="utf-8"))
    sources = held["sources"]
    marks = {key: (certainty, sources[source], *note) for key, (certainty, source, *note) in held["marks"].items()}
    assert {mark[0] for mark in marks.values()} <= set(CERTAINTIES), path
    return KnownCluster(
        path.stem,
        held["title"],
        held["scheduler"],
        held["recognised"]["hosts"],
        frozenset(held["recognised"]["all_of"]),
        held["account"],
        flat(site),
        marks,
    )
