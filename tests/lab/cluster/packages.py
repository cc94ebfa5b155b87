"""The Debian packages of the labs: missing ones are installed."""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests import machine

from .processes import LabError, run

PACKAGE_OF = {"mpirun": "openmpi-bin", "mpiexec.hydra": "mpich", "ip": "iproute2"}
LOCK = Path("/run/torusrun-lab-packages.lock")  # apt does not wait for another apt
SEARCH = "/usr/sbin:/usr/bin:/sbin:/bin"
# Programs that single tests need: the package of each, and libraries that it does not bring.
PACKAGES = {
    "c++": ["g++"],
    "ip": ["iproute2"],
    "mpicc.openmpi": ["openmpi-bin", "libopenmpi-dev", "libc6-dev", "gcc"],
    "ssh-keygen": ["openssh-client"],
    "strace": ["strace"],
    "tsp": ["task-spooler"],
}


def why_not_here() -> str | None:
    """The reason why this machine cannot run the lab, or None."""
    reason = _why_not_debian() or machine.why_not("users", "mount", "network")
    return reason and f"no lab here: {reason}"


def _why_not_debian() -> str | None:
    if os.geteuid() != 0:
        return "only root installs packages and makes networks"
    return None if os.path.exists("/etc/debian_version") else "this is not Debian, whose packages it is made from"


@functools.cache
def why_missing(program: str, install: bool) -> str | None:
    """The reason why a program of PACKAGES is not here, or None. It is installed first if that is asked for."""
    package, *libraries = PACKAGES[program]
    how = f"install {package}, or run `make test-labs` as root on Debian"
    if install and not (how := _why_not_debian() or ""):
        try:
            install_missing({program: package}, libraries)
        except (LabError, subprocess.TimeoutExpired) as error:
            how = f"{package} cannot be installed: {error}".splitlines()[0]
    return None if shutil.which(program) else f"{program} is not on PATH: {how}"


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
