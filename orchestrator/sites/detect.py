"""Finds the schedulers that this machine can reach."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torusrun.orchestrator import schedulers
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError, UserError
from torusrun.orchestrator.schedulers.client import Client
from torusrun.orchestrator.schedulers.cluster_facts import ClusterFacts

ASKING_S = 30.0
LOCAL = "local"


@dataclass(frozen=True)
class Reached:
    """A scheduler, and its answers about its cluster."""

    name: str
    facts: ClusterFacts

    @property
    def one_machine(self) -> bool:
        """Whether this machine is the whole cluster."""
        return schedulers.get(self.name).traits.one_machine


def named(name: str) -> Reached:
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
            found.append(named(name))
        except SiteError as error:
            silent.append(f"{name}: {error}")
    if silent and not found:
        raise SiteError(
            f"no scheduler answers, so no site is written: {'; '.join(silent)}; try again when one answers, or "
            f"use only this machine with --scheduler {LOCAL}"
        )
    for why in silent:
        say(f"left out: {why}")
    return found or [named(LOCAL)]
