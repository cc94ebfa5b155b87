"""Finds the schedulers that this machine can reach, and the known clusters: how each is recognised."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import Any

import yaml

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.keys.load import SHIPPED
from torusrun.orchestrator.keys.request import Resources
from torusrun.orchestrator.keys.shared import Software
from torusrun.orchestrator.keys.site import ContainerSettings, Node
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts
from torusrun.orchestrator.sites.choices import Certainty, Setting

ASKING_S = 30.0
LOCAL = "local"
GENERIC = "generic"  # the name of every other cluster for --cluster
# The parts of a site whose values are written one by one.
SECTIONS: dict[str, type[Any]] = {
    "node": Node,
    "request": Resources,
    "container": ContainerSettings,
    "environment": Software,
}


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

    Raises SiteError if programs are on PATH but no scheduler answers. A login node whose scheduler is down must not
    count as a machine without a scheduler: Slurm's answer is the same as on a machine outside every cluster.
    """
    answering, silent = [], []
    for name in schedulers.KNOWN:
        if not which(*schedulers.get(name).cluster.programs):
            continue
        say(f"asking {name} about its queues and nodes")
        try:
            answering.append(named_scheduler(name))
        except SiteError as error:
            silent.append(f"{name}: {error}")
    if silent and not answering:
        raise SiteError(
            f"no scheduler answers, so no site is written: {'; '.join(silent)}; try again when one answers, or "
            f"use only this machine with --scheduler {LOCAL}"
        )
    for why in silent:
        say(f"left out: {why}")
    return answering or [named_scheduler(LOCAL)]


class Recognition(Enum):
    """How certain it is that a login node belongs to a known cluster."""

    NONE = "no"
    POSSIBLE = "its queues and resources have the same names, and nothing else is known"
    CERTAIN = "it has the name of a login node, or its queues and its nodes agree"


@dataclass(frozen=True)
class KnownCluster:
    """A cluster whose site ships under its name: how its login nodes are recognised."""

    name: str
    title: str
    hosts: str  # a pattern of the names of its login nodes
    all_of: tuple[str, ...]  # queues and resources that it has
    account: str  # the form of an account, and the command that lists yours

    @cached_property
    def values(self) -> dict[str, Any]:
        """The values of its site, under dotted keys."""
        return flat(yaml.safe_load(self._text))

    @property
    def _text(self) -> str:
        return (SHIPPED / f"{self.name}.yaml").read_text(encoding="utf-8")

    def settings(self) -> Iterator[Setting]:
        """The values of its site, each with the remark behind it."""
        behind = remarks(self._text)
        for key, value in self.values.items():
            remark = behind.get(key) or behind.get(key.partition(".")[0])  # a section may stand in one line
            words = f"the site {self.name} that ships{f': {remark}' if remark else ''}"
            yield Setting(key, value, words, Certainty.KNOWN)

    def recognition(
        self, scheduler: str, hosts: Iterable[str], names: frozenset[str], gpus: frozenset[int]
    ) -> Recognition:
        """How certain the match is, by the login node's names, the queues and resources, and the nodes.

        `gpus` are the known numbers of GPUs per node. Another cluster may have the same names of queues, so names alone
        prove nothing; nodes with other numbers of GPUs belong to another cluster.
        """
        if scheduler != self.values["scheduler"]:
            return Recognition.NONE
        if any(re.fullmatch(self.hosts, host) for host in hosts):
            return Recognition.CERTAIN
        if not names.issuperset(self.all_of) or (gpus and self.values["node.gpus"] not in gpus):
            return Recognition.NONE
        return Recognition.CERTAIN if gpus else Recognition.POSSIBLE


OF_ABCI = "your ABCI group, as in gXX12345; `show_point` lists yours"
OF_TSUBAME = "your TSUBAME group, as in tga-NAME; `t4-user-info group point` lists yours"
KNOWN = (
    KnownCluster("abci-a", "ABCI 2.0, compute node (A)", r"es-a\d*(\.abci\.local|\.abci\.ai)?",
                 ("rt_AF", "rt_AG.small"), OF_ABCI),
    KnownCluster("abci-h", "ABCI 3.0, compute node (H)", r"login\d*\.v3\.abci\.(ai|local)",
                 ("rt_HF", "rt_HG", "rt_HC"), OF_ABCI),
    KnownCluster("abci-v", "ABCI 1.0 and 2.0, compute node (V)", r"es\d*(\.abci\.local|\.abci\.ai)?",
                 ("rt_F", "rt_G.large", "rt_C.large"), OF_ABCI),
    KnownCluster("tsubame4", "TSUBAME 4.0, whole nodes (node_f)", r"login\d*\.t4\.gsic\.titech\.ac\.jp",
                 ("node_f", "node_h", "node_q"), OF_TSUBAME),
)  # fmt: skip
CLUSTERS = {cluster.name: cluster for cluster in KNOWN}


def recognised(
    scheduler: str, hosts: Iterable[str], names: Iterable[str], gpus: Iterable[int] = ()
) -> dict[str, Recognition]:
    """The clusters to which a login node with these host names, queues and resources, and nodes may belong."""
    signs = tuple(hosts), frozenset(names), frozenset(gpus)
    matches = {name: cluster.recognition(scheduler, *signs) for name, cluster in CLUSTERS.items()}
    return {name: match for name, match in matches.items() if match is not Recognition.NONE}


def flat(site: dict[str, Any]) -> dict[str, Any]:
    """A site's values under dotted keys."""
    values: dict[str, Any] = {}
    for key, value in site.items():
        values |= {f"{key}.{inner}": held for inner, held in value.items()} if key in SECTIONS else {key: value}
    return values


def remarks(text: str) -> dict[str, str]:
    """The comment behind each value of a site, under dotted keys; (V) and (M) in words."""
    comments, section = {}, ""
    for indent, key, value, comment in re.findall(r"^( *)([a-z_]+):([^#\n]*)(?:# (.*))?$", text, re.MULTILINE):
        section = section if indent else f"{key}." if not value.strip() else ""
        if comment:
            words = re.sub(r"\(M\b", "(from memory", re.sub(r"\(V\b", "(verified", comment))
            comments[f"{section if indent else ''}{key}"] = words
    return comments
