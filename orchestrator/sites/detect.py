"""Which schedulers this machine can reach."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from dataclasses import dataclass

from orchestrator import schedulers
from orchestrator.environment import absolute_only
from orchestrator.errors import SiteError, UserError
from orchestrator.schedulers.client import Client
from orchestrator.schedulers.cluster_facts import ClusterFacts

ASKING_S = 30.0
LOCAL = "local"


@dataclass(frozen=True)
class Reached:
    """A scheduler and what it told of its cluster."""

    name: str
    facts: ClusterFacts


def named(name: str) -> Reached:
    """The scheduler that the user named. Raises SiteError where it does not answer, UserError for an unknown name."""
    if name not in schedulers.KNOWN:
        raise UserError(f"--scheduler: {schedulers.unknown(name)}")
    return Reached(name, Client(schedulers.get(name), ASKING_S).describe())


def reachable(say: Callable[[str], None]) -> list[Reached]:
    """All schedulers whose programs are on PATH and that answer; this machine where no scheduler's program is there.

    Raises SiteError where programs are there and none of their schedulers answers: a login node whose scheduler is
    down is not to be taken for a machine without one.
    """
    found, silent = [], []
    for name in schedulers.KNOWN:
        if not _on_path(schedulers.get(name).programs):
            continue
        say(f"asking {name} about its queues and nodes")
        try:
            found.append(named(name))
        except SiteError as error:
            if not schedulers.get(name).is_elsewhere(str(error)):
                silent.append(f"{name}: {error}")
    if silent and not found:
        raise SiteError(
            "; ".join(silent) + "; mend that, name the scheduler by --scheduler, or take this machine alone by "
            f"--scheduler {LOCAL}"
        )
    return found or [named(LOCAL)]


def _on_path(programs: tuple[str, ...]) -> bool:
    places = absolute_only(os.environ.get("PATH", os.defpath))
    return any(shutil.which(program, path=places) for program in programs)
