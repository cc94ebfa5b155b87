"""The environment of other programs: without variables of an outer job, and without the working directory in a path.

What we ask gets a clean environment, in English. A job gets the user's own: our hygiene must not reach the program.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from itertools import chain

# SLURM_CONF and the other variables in KEPT locate the scheduler. The rest describe our own job, or are the
# user's defaults of Slurm's commands (man squeue, ENVIRONMENT VARIABLES): they would filter answers, or change them.
INHERITED = (
    "SLURM_", "SBATCH_", "SRUN_", "SQUEUE_", "SCANCEL_", "SACCT_", "SINFO_", "SCONTROL_", "SBCAST_", "PBS_", "SGE_",
    "PE_", "PMI_", "PMIX_", "OMPI_", "PRTE_", "SUBMITIT_", "TORUSRUN_",
)  # fmt: skip
KEPT = {
    "SLURM_CONF", "SLURM_TIME_FORMAT", "PBS_CONF_FILE", "PBS_SERVER", "PBS_DEFAULT", "PBS_EXEC", "SGE_ROOT", "SGE_CELL",
    "SGE_CLUSTER_NAME", "SGE_QMASTER_PORT", "SGE_EXECD_PORT", "TORUSRUN_RUNS",
}  # fmt: skip
# What an outer job or launcher sets, by a variable that shows it: a job inside must not take it for its own.
OUTER = {
    "SLURM_JOB_ID": ("SLURM_", "SLURMD_", "SRUN_"),
    "PBS_JOBID": ("PBS_",),
    "SGE_TASK_ID": ("SGE_", "PE_HOSTFILE", "JOB_ID"),
    "PMI_RANK": ("PMI_",),
    "PMIX_RANK": ("PMIX_", "PMI_", "OMPI_", "PRTE_"),
    "OMPI_COMM_WORLD_RANK": ("PMIX_", "PMI_", "OMPI_", "PRTE_"),
}
# Of this tool's own jobs, and the defaults of sbatch, which would override the request.
NEVER_FOR_JOBS = ("TORUSRUN_", "SUBMITIT_", "SBATCH_")


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
    import shutil  # with its compressions, many files: `status` needs none

    places = _programs(os.environ if environment is None else environment)
    return next((path for name in names if (path := shutil.which(name, path=places))), None)


def _programs(environment: Mapping[str, str]) -> str:
    # An empty PATH means the working directory, too.
    return absolute_only(environment.get("PATH", "")) or os.defpath


def clean_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """A copy of the environment (default: our own) for what we ask: without the variables of schedulers and MPIs.

    Programs answer in English.
    """
    return {**_without(os.environ if base is None else base, INHERITED), "LC_ALL": "C"}


def jobs_environment(base: Mapping[str, str] | None = None) -> dict[str, str]:
    """A copy of the environment (default: our own) for what the user runs: without what belongs to an outer job."""
    base = os.environ if base is None else base
    return _without(base, belongs_to_outer(base))


def belongs_to_outer(environment: Mapping[str, str]) -> tuple[str, ...]:
    """How the names of variables begin that no job inside this environment gets."""
    outer = (prefixes for sign, prefixes in OUTER.items() if sign in environment)
    return (*NEVER_FOR_JOBS, *chain.from_iterable(outer))


def _without(environment: Mapping[str, str], prefixes: tuple[str, ...]) -> dict[str, str]:
    return {name: value for name, value in environment.items() if name in KEPT or not name.startswith(prefixes)}


def user_name() -> str:
    """The user's name from the variables or the password database; the number of the user if neither has a name."""
    import getpass  # few verbs need it

    try:
        return getpass.getuser()
    except (KeyError, OSError, ImportError):  # OSError since Python 3.13
        return str(os.getuid())
