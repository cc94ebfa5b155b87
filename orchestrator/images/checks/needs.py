"""The needs of a run from its image and its site, as far as the checks use them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torusrun.orchestrator.schedulers import launchers
from torusrun.orchestrator.schedulers.launchers.launcher import Pmi


@dataclass(frozen=True)
class Wanted:
    """A run to be checked.

    `calls_mpi` is whether the program calls MPI: "no" (torusrun's own training), "yes" (it is linked with one), or
    "maybe" (a command whose libraries are unknown). `srun_mpi` is the value of --mpi in the site's launcher_args.
    """

    training: bool = True  # torusrun's own training; else a command
    calls_mpi: Literal["no", "maybe", "yes"] = "no"
    host_mpi: str | None = None  # the folder in the image at which the site's MPI is bound
    launcher: str = "spawn"
    srun_mpi: str = ""
    cluster: bool = False  # the run uses other machines than this one
    nodes: int = 1
    ranks: int = 1  # of all nodes together
    uses_gpus: bool = False
    gpus: tuple[str, ...] = ()  # architectures of the site's GPUs, if the site names them
    driver: str | None = None  # the nodes' driver, if the site names it
    hcas: tuple[str, ...] = ()  # the site's InfiniBand adapters
    builds: bool = False  # the image has still to be built on this machine
    fakeroot: bool = True  # build with --fakeroot
    pyxis: bool = False  # srun itself starts the ranks in the image

    @property
    def pmi(self) -> Pmi:
        """The kind of program that connects the ranks of an MPI program, if any."""
        return launchers.family(self.launcher).pmi
