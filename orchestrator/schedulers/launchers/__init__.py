"""The launchers, which start the ranks of a job: srun, Open MPI's mpirun, Hydra (MPICH, Intel MPI) and spawn."""

from __future__ import annotations

from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.schedulers.launchers.launcher import Launcher
from torusrun.orchestrator.schedulers.launchers.mpirun import Hydra, OpenMPI
from torusrun.orchestrator.schedulers.launchers.spawn import Spawn
from torusrun.orchestrator.schedulers.launchers.srun import Srun

FAMILIES: tuple[type[Launcher], ...] = (Srun, OpenMPI, Hydra, Spawn)
# Programs whose name is enough; the others belong to an MPI, which their version text names.
KNOWN: dict[str, type[Launcher]] = {"srun": Srun, "spawn": Spawn, "mpiexec.hydra": Hydra}
ASKED = ("mpirun", "mpiexec")


def family(program: str) -> type[Launcher]:
    """The launcher's class by its program's name; for a name that several MPIs use, their common class."""
    return KNOWN.get(program, Launcher)


def named(program: str, version: str = "") -> Launcher:
    """The launcher of `program`; if several MPIs have a program of that name, by the output of `program --version`.

    Raises SiteError for an unknown MPI.
    """
    if program in KNOWN:
        return KNOWN[program](program)
    for launcher in (OpenMPI.recognized(program, version), Hydra.recognized(program, version)):
        if launcher:
            return launcher
    first = next(iter(version.strip().splitlines()), "nothing")
    raise SiteError(
        f"{program} is neither Open MPI's nor Hydra (MPICH, Intel MPI): `{program} --version` says {first[:200]!r}; "
        "load the module of one of them, or put its folder first on PATH in `setup`; Slurm needs neither with srun"
    )
