"""The launch order of an attempt (launch.json), from which every rank's wrapper starts its program."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.typed import read_record
from torusrun.orchestrator.images.command import Bind, ContainerExec, SecretVariables
from torusrun.orchestrator.job.staging.order import StagedHere, StageOrder, moved
from torusrun.orchestrator.place.placement.binding import beside
from torusrun.orchestrator.place.placement.mapping import Placement, Slot
from torusrun.orchestrator.run.folder import attempt_folders
from torusrun.orchestrator.run.folder.kept_secrets import kept
from torusrun.orchestrator.run.folder.run_folder import Attempt
from torusrun.orchestrator.run.program.what_runs import Program, ReadyCheck, master_environment, ranks_environment
from torusrun.training.counted import counted

STAGED = "TORUSRUN_STAGED"  # the folder with what is staged for the run
GPUS = "CUDA_VISIBLE_DEVICES"  # HIP reads it, too
OF_GRID_ENGINE = "SGE_HGR_gpu"  # Univa's and Altair's, for a resource map `gpu`: '0 1'
OF_SLURM = "SLURM_STEP_GPUS"  # their numbers on this host


@dataclass(frozen=True)
class RoleOrder:
    """What the ranks of a role start; a run without roles has one role, named ''."""

    program: Program
    container: ContainerExec | None = None
    name: str = ""
    service: bool = False  # it ends on request; any other end of it is a failure
    after: tuple[str, ...] = ()  # roles that must be ready before
    ready: ReadyCheck = ReadyCheck()
    alive: bool = False  # whether the check goes on once it is ready
    restart: int = 0  # how often a rank is started again
    python: Mapping[str, str] = field(default_factory=dict)  # the folder of its Python, by VIRTUAL_ENV or CONDA_PREFIX
    each: bool = False  # whether it is started for each checkpoint, and `newest` first
    newest: bool = False
    judges: str = ""  # the folder of these checkpoints
    of_run: str = ""  # the folder of their run, if that is another run
    gpus: tuple[int, ...] | None = None  # among those of its job on the node; None for all


@dataclass(frozen=True)
class LaunchOrder:
    """What the ranks start."""

    run: str
    roles: tuple[RoleOrder, ...]  # the main role first
    numbers: tuple[str, str]  # the launcher's variables with a rank's number and its number on its host
    hcas: tuple[str, ...]  # a node's adapters
    beside: tuple[tuple[int, ...], ...]  # the cores beside each GPU of a node
    interface: str | None
    kill_after_s: float
    umask: int
    host_variable: str = ""  # has the scheduler's name of a rank's host
    gpus: int | None = None  # how many of the node's GPUs the job has, if that is a part of them
    in_image: bool = False  # whether the launcher starts the wrapper itself in the image, by Pyxis
    stage: StageOrder | None = None
    secrets: tuple[str, ...] = ()  # the names of secret variables; their values are in the run's own file

    def as_json(self) -> dict[str, Any]:
        return {"schema": 3, **asdict(self)}

    def role(self, name: str) -> RoleOrder:
        """The role with this name. Raises SiteError without such a role."""
        for role in self.roles:
            if role.name == name:
                return role
        raise SiteError(f"the launch order of the attempt has no role {name!r}")


def ordered(attempt: Attempt) -> tuple[LaunchOrder, Placement]:
    """The launch order of an attempt, and its placement. Raises SiteError if either is missing or damaged."""
    order, placement = read_record(attempt.launch, LaunchOrder), attempt_folders.placement(attempt)
    if order is None or placement is None:
        raise SiteError(f"{attempt.folder}: its ranks have not been placed yet")
    return order, placement


@dataclass(frozen=True)
class Rank:
    """One rank of an attempt."""

    number: int
    attempt: Attempt
    order: LaunchOrder
    placement: Placement
    judgement: Mapping[str, str] = field(default_factory=dict)  # the variables with the checkpoint that it judges
    staged: StagedHere = StagedHere()

    @property
    def slot(self) -> Slot:
        return self.placement.slots[self.number]

    @property
    def role(self) -> RoleOrder:
        return self.order.role(self.slot.role)

    @property
    def container(self) -> ContainerExec | None:
        """The image of its program, or the copy of the image, with the folder of what is staged."""
        if not (image := self.role.container) or not self.staged.folder:
            return image
        bound = (*image.binds, Bind(str(Path(self.staged.folder).parent)))
        return replace(image, image=moved(image.image, self.staged.copies), binds=bound)

    @property
    def of_role(self) -> tuple[Slot, ...]:
        """The slots of its role, in order."""
        return self.placement.of_role(self.slot.role)

    def cores(self, inherited: Mapping[str, str]) -> list[tuple[tuple[int, ...], ...]]:
        """For each rank on its host, in the order of the local ranks, the cores beside each of its GPUs."""
        near = self.order.beside
        given = numbers(inherited) if self.order.gpus else []
        known = [near[gpu % len(near)] for gpu in given] if given and near else near
        return [self._cores(slot, known) for slot in self.placement.slots if slot.host == self.slot.host]

    def _cores(self, slot: Slot, known: Sequence[tuple[int, ...]]) -> tuple[tuple[int, ...], ...]:
        other, gpus = replace(self, number=slot.rank), self.order.role(slot.role).gpus
        mine = [known[gpu % len(known)] for gpu in gpus] if gpus is not None and known else known
        return beside(mine, sum(peer.host == slot.host for peer in other.of_role))[other.local_rank]

    @property
    def in_role(self) -> int:
        """Its number among the ranks of its role."""
        return self.number - self.of_role[0].rank

    @property
    def local_rank(self) -> int:
        """Its number among the ranks of its role on its host."""
        return [slot.rank for slot in self.of_role if slot.host == self.slot.host].index(self.number)

    @property
    def leads(self) -> bool:
        """Whether it is the first rank of its role."""
        return self.in_role == 0

    def variables(self, meets: tuple[str, int | str] | None, inherited: Mapping[str, str]) -> dict[str, str]:
        """Its program's variables besides those it inherits; `meets` is the address and port where the ranks meet."""
        order, given, peers = self.order, self.role.program.environment, self.of_role
        python = {name: moved(folder, self.staged.copies) for name, folder in self.role.python.items()}
        here = sum(other.host == self.slot.host for other in peers)
        return {
            **visible(self.role.gpus, inherited),
            **fabric(order.hcas, *self._beside(here, inherited)),
            **told_network(order.hcas, given, inherited),
            **given,
            **in_front(python, given.get("PATH") or inherited.get("PATH", "")),
            **({STAGED: self.staged.folder} if self.staged.folder else {}),
            **self.judgement,
            **ranks_environment(self.placement, self.number, order.run, self.attempt.number),
            **(master_environment(self.placement, self.number, *meets) if meets else {}),
        }

    def _beside(self, here: int, inherited: Mapping[str, str]) -> tuple[int, int]:
        """(its place on the node, of how many): among the `here` ranks of its role, or by its GPU on a shared node."""
        given = numbers(inherited) if self.order.gpus else []
        if not given:
            return self.local_rank, here
        return given[self.local_rank % len(given)] % len(self.order.beside), len(self.order.beside)


def secrets_of(attempt: Attempt, names: Sequence[str]) -> SecretVariables:
    """The secret variables of an attempt's ranks. Raises SiteError if a value is missing."""
    return SecretVariables(kept(attempt.run, names), str(attempt.run.secrets))


def given(inherited: Mapping[str, str]) -> list[str]:
    """The job's GPUs on this host, as its scheduler names them; [] if it names none."""
    return [gpu for gpu in inherited.get(GPUS, inherited.get(OF_GRID_ENGINE, "")).replace(" ", ",").split(",") if gpu]


def numbers(inherited: Mapping[str, str]) -> list[int]:
    """The numbers of the job's GPUs among all of this host; [] if they are unknown.

    With control groups CUDA_VISIBLE_DEVICES numbers the job's own from 0, and Slurm has those of the host besides.
    """
    named = given({GPUS: inherited.get(OF_SLURM, "")}) or given(inherited)
    return [int(gpu) for gpu in named] if all(gpu.isdecimal() for gpu in named) else []


def check_shared(gpus: int | None, inherited: Mapping[str, str], devices: Path = Path("/dev")) -> None:
    """Raise SiteError if a job has `gpus` of a host's, and nothing says or enforces which GPUs."""
    if gpus and not given(inherited):
        shown = sum(_opens(device) for device in devices.glob("nvidia[0-9]*"))
        if shown > gpus:
            raise SiteError(
                f"the job has {counted(gpus, 'GPU')} of this node, which shows {shown}, and its scheduler does not say "
                f"which: {GPUS} is not set; ask the site's support for it, or take whole nodes (leave out request.gpus)"
            )


def _opens(device: Path) -> bool:
    try:
        os.close(os.open(device, os.O_RDWR))
    except OSError:
        return False
    return True


def visible(gpus: Sequence[int] | None, inherited: Mapping[str, str]) -> dict[str, str]:
    """The variable that shows a program its role's GPUs, of those that the job shows; {} for what it inherits."""
    shown = given(inherited)
    if gpus is None:
        return {GPUS: ",".join(shown)} if shown and GPUS not in inherited else {}
    return {GPUS: ",".join(shown[gpu] if gpu < len(shown) else str(gpu) for gpu in gpus)}


def in_front(python: Mapping[str, str], path: str) -> dict[str, str]:
    """The variables that put the folder of a Python in front of `path`; {} for none."""
    folders = [f"{folder}/bin" for folder in python.values()]
    return {**python, "PATH": os.pathsep.join(filter(None, [*folders, path]))} if python else {}


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
