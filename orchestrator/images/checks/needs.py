"""What a run asks of its image and of the site, as far as the checks need it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from orchestrator.schedulers import launchers
from orchestrator.schedulers.launchers.launcher import Pmi


@dataclass(frozen=True)
class Wanted:
    """A run to be checked.

    `calls_mpi` says whether the program calls MPI: "no" (torusrun's own training), "yes" (it is linked with one), or
    "maybe" (a command that nobody can look into). `srun_mpi` is what the site's launcher_args give srun as --mpi.
    """

    training: bool = True  # torusrun's own training; otherwise a command
    calls_mpi: Literal["no", "maybe", "yes"] = "no"
    host_mpi: str | None = None  # the folder in the image at which the site's MPI is bound
    launcher: str = "spawn"
    srun_mpi: str = ""
    cluster: bool = False  # other machines than this one run it
    nodes: int = 1
    ranks: int = 1  # of all nodes
    uses_gpus: bool = False
    gpus: tuple[str, ...] = ()  # architectures of the site's GPUs, where the site names them
    driver: str | None = None  # the nodes' driver, likewise
    hcas: tuple[str, ...] = ()  # the site's InfiniBand adapters
    builds: bool = False  # the image is still to be built on this machine
    fakeroot: bool = True  # by --fakeroot

    @property
    def pmi(self) -> Pmi:
        """Who connects the ranks of an MPI program."""
        return launchers.family(self.launcher).pmi
