"""The environment of other programs: without variables of our own job, and without the working directory in a path."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping

# SLURM_CONF and the other variables in KEPT locate the scheduler. The rest describe our own job, or are the
# user's defaults of Slurm's commands (man squeue, ENVIRONMENT VARIABLES): they would filter answers, or change them.
INHERITED = (
    "SLURM_",
    "SBATCH_",
    "SRUN_",
    "SQUEUE_",
    "SCANCEL_",
    "SACCT_",
    "SINFO_",
    "SCONTROL_",
    "SBCAST_",
    "PBS_",
    "SGE_",
    "PE_",
    "PMI_",
    "PMIX_",
    "OMPI_",
    "PRTE_",
    "SUBMITIT_",
    "TORUSRUN_",
)
KEPT = {
    "SLURM_CONF",
    "SLURM_TIME_FORMAT",
    "PBS_CONF_FILE",
    "PBS_SERVER",
    "PBS_DEFAULT",
    "PBS_EXEC",
    "SGE_ROOT",
    "SGE_CELL",
    "SGE_CLUSTER_NAME",
    "SGE_QMASTER_PORT",
    "SGE_EXECD_PORT",
    "TORUSRUN_RUNS",
}


def absolute_only(path: str) -> str:
    """A search path without empty and relative entries: these mean the working directory and folders in it."""
    return os.pathsep.join(entry for entry in path.split(os.pathsep) if os.path.isabs(entry))


def safe(environment: Mapping[str, str]) -> dict[str, str]:
    """The environment, its PATH and PYTHONPATH without entries that depend on the working directory."""
    kept = dict(environment)
    if "PYTHONPATH" in kept:
        kept["PYTHONPATH"] = absolute_only(kept["PYTHONPATH"])
    if "PATH" in kept:
        kept["PATH"] = _programs(kept)
    return kept


def which(*names: str, environment: Mapping[str, str] | None = None) -> str | None:
    """The path of the first of these programs that is in a folder of PATH (default: our own), or None."""
    places = _programs(os.environ if environment is None else environment)
    return next((path for name in names if (path := shutil.which(name, path=places))), None)


def _programs(environment: Mapping[str, str]) -> str:
    # An empty PATH means the working directory, too.
    return absolute_only(environment.get("PATH", "")) or os.defpath


def clean_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """A copy of the environment (default: our own) without the variables of our own job or MPI launcher."""
    base = os.environ if base is None else base
    kept = {k: v for k, v in base.items() if k in KEPT or not k.startswith(INHERITED)}
    return {**kept, "LC_ALL": "C"}
