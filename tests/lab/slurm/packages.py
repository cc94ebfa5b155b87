"""Slurm's Debian packages."""

from __future__ import annotations

import shutil

from ..cluster.packages import SEARCH, install_missing
from ..cluster.processes import LabError

PACKAGE_OF = {
    "slurmctld": "slurm-wlm",
    "slurmdbd": "slurmdbd",
    "srun": "slurm-client",
    "munged": "munge",
    "mariadbd": "mariadb-server",
}
# Libraries that Slurm loads at run time: they have no program to look for. Its PMIx plug-in opens the
# unversioned libpmix.so, which is in the -dev package.
PLUGINS = ["slurm-wlm-mysql-plugin", "libpmix-dev"]


def install() -> None:
    installed = install_missing(PACKAGE_OF, PLUGINS)
    if not shutil.which("slurmd", path=SEARCH):
        raise LabError(f"slurmd is still missing after installing {installed}")
