"""The Debian packages of the labs: missing ones are installed."""

from __future__ import annotations

import fcntl
import os
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from .processes import run

PACKAGE_OF = {"mpirun": "openmpi-bin", "mpiexec.hydra": "mpich", "ip": "iproute2"}
LOCK = Path("/run/torusrun-lab-packages.lock")  # apt does not wait for another apt
SEARCH = "/usr/sbin:/usr/bin:/sbin:/bin"


def why_not_here() -> str | None:
    """The reason why this machine cannot run the lab, or None."""
    if os.geteuid() != 0:
        return "the lab needs root (it makes network namespaces)"
    if not os.path.exists("/etc/debian_version"):
        return "the lab is made from Debian's packages, and this is not Debian"
    return None


def install_missing(package_of: Mapping[str, str], libraries: Sequence[str] = ()) -> list[str]:
    """Install the packages of missing programs, and missing libraries; returns the names of the missing ones."""
    with LOCK.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        missing = [package for program, package in package_of.items() if not shutil.which(program, path=SEARCH)]
        missing += [package for package in libraries if not _installed(package)]
        if missing:
            # RUNLEVEL=1 keeps Debian's scripts from starting the packages' own daemons.
            env = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1", "PATH": SEARCH, "LC_ALL": "C"}
            install = ["apt-get", "install", "-y", "-qq", "--no-install-recommends", "--option=DPkg::Lock::Timeout=600"]
            run(["apt-get", "update", "-qq"], timeout_s=300, env=env)
            run([*install, *missing], timeout_s=900, env=env)
    return missing


def _installed(package: str) -> bool:
    return "install ok installed" in run(["dpkg-query", "-W", "-f", "${Status}", package], check=False).stdout
