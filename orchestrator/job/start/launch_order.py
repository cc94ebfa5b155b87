"""The launch order of an attempt (launch.json), from which every rank's wrapper starts its program."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.json_files import damaged, read_object
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.images.command import ContainerExec, SecretVariables
from torusrun.orchestrator.place.placement.mapping import Placement, Slot
from torusrun.orchestrator.run.folder.kept_secrets import kept
from torusrun.orchestrator.run.folder.run_folder import Attempt, RunFolder
from torusrun.orchestrator.run.program.what_runs import Program, master_environment, ranks_environment


@dataclass(frozen=True)
class RankImage(ContainerExec):
    """The image of the ranks; `stage` is the folder for its copy on each node, None if they start the image itself."""

    stage: str | None = None
    sha256: str = ""


@dataclass(frozen=True)
class LaunchOrder:
    """What the ranks start."""

    run: str
    program: Program
    numbers: tuple[str, str]  # the launcher's variables with a rank's number and its number on its host
    hcas: tuple[str, ...]  # a node's adapters
    beside: tuple[tuple[int, ...], ...]  # the cores beside each local rank's GPU
    interface: str | None
    container: RankImage | None
    kill_after_s: float
    umask: int
    host_variable: str = ""  # has the scheduler's name of a rank's host
    in_image: bool = False  # whether the launcher starts the wrapper itself in the image, by Pyxis
    secrets: tuple[str, ...] = ()  # the names of secret variables; their values are in the run's own file

    def as_json(self) -> dict[str, Any]:
        return {"schema": 2, **asdict(self)}


def ordered(attempt: Attempt) -> tuple[LaunchOrder, Placement]:
    """The launch order of an attempt, and its placement. Raises SiteError if one is missing or damaged."""
    order, placement = read_record(attempt.launch, LaunchOrder), read_object(attempt.placement)
    if order is None or placement is None:
        raise SiteError(f"{attempt.folder}: its ranks have not been placed yet")
    try:
        return order, Placement.from_json(placement)
    except (KeyError, TypeError, ValueError):
        raise damaged(attempt.placement, "it is no placement") from None


@dataclass(frozen=True)
class Rank:
    """One rank of an attempt."""

    number: int
    attempt: Attempt
    order: LaunchOrder
    placement: Placement

    @property
    def slot(self) -> Slot:
        return self.placement.slots[self.number]

    def variables(self, meets: tuple[str, int | str] | None, inherited: Mapping[str, str]) -> dict[str, str]:
        """Its program's variables besides those it inherits; `meets` is the address and port where the ranks meet."""
        order, given = self.order, self.order.program.environment
        here = sum(other.host == self.slot.host for other in self.placement.slots)
        return {
            **fabric(order.hcas, self.slot.local_rank, here),
            **told_network(order.hcas, given, inherited),
            **given,
            **ranks_environment(self.placement, self.number, order.run, self.attempt.number),
            **(master_environment(self.placement, self.number, *meets) if meets else {}),
        }


def secrets_of(attempt: Attempt, names: Sequence[str]) -> SecretVariables:
    """The secret variables of an attempt's ranks. Raises SiteError if one is missing."""
    run = RunFolder(attempt.folder.parents[1])
    return SecretVariables(kept(run, names), str(run.secrets))


def fabric(hcas: Sequence[str], local_rank: int, ranks_here: int) -> dict[str, str]:
    """The variables that give UCX the adapter beside the rank, and NCCL all adapters, as it knows distances itself."""
    if not hcas:
        return {}
    adapter, _, port = hcas[local_rank * len(hcas) // ranks_here].partition(":")
    return {"NCCL_IB_HCA": f"={','.join(hcas)}", "UCX_NET_DEVICES": f"{adapter}:{port or 1}"}


def told_network(hcas: Sequence[str], *given: Mapping[str, str]) -> dict[str, str]:
    """The variables that make NCCL log which network it chose, unless one of `given` sets NCCL_DEBUG."""
    if not hcas or any("NCCL_DEBUG" in variables for variables in given):
        return {}
    return {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET"}
