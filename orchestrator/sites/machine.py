"""Facts about this login node: file systems, adapters, interfaces, MPI, modules, the container runtime."""

from __future__ import annotations

import re
import socket
from dataclasses import dataclass
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.base.shipped import shipped
from torusrun.orchestrator.images.checks import facts
from torusrun.orchestrator.images.checks.answers import MpiLibrary
from torusrun.orchestrator.images.runtime import Runtime, find

ASKING_S = 30.0
NET, INFINIBAND = Path("/sys/class/net"), Path("/sys/class/infiniband")
INFINIBAND_TYPE = "32"  # ARPHRD_INFINIBAND
# Types of shared file systems in `stat -f`; a type that is not listed here may still be shared.
SHARED = re.compile(r"nfs|lustre|gpfs|beegfs|fhgfs|ceph|panfs|wekafs|afs|pvfs2|orangefs|smb|cifs|gluster|quobyte|9p")
LOCAL_TYPES = re.compile(r"ext2|xfs|btrfs|zfs|tmpfs|ramfs|overlay|f2fs|ufs|jfs|reiserfs")
MPI_MODULES = ("openmpi", "hpcx", "ompi", "intelmpi", "intel-mpi", "impi", "mpich", "mvapich2")
DEFAULT = re.compile(r"\((default|D|[^)]*\bD\b[^)]*)\)$")
RUNTIME_MODULES = ("apptainer", "singularitypro", "singularity-ce", "singularityce", "singularity")


@dataclass(frozen=True)
class Adapter:
    """An InfiniBand adapter whose link is up, and its rate in one direction."""

    name: str
    bytes_per_s: float


@dataclass(frozen=True)
class Machine:
    """The facts found here. `modules` are the names in `module avail`, in its order."""

    adapters: tuple[Adapter, ...]
    interfaces: tuple[str, ...]
    mpi: MpiLibrary | None
    runtime: Runtime | None
    user_namespaces: bool
    fakeroot: bool
    modules: tuple[str, ...]


def look() -> Machine:
    try:
        runtime = find()
    except SiteError:
        runtime = None
    host = facts.host(runtime, "mpirun")
    listed = modules(_said(["bash", "-c", f"{_init()}\nmodule -t avail 2>&1"]))
    return Machine(adapters(), interfaces(), host.mpi, runtime, host.user_namespaces, host.fakeroot, listed)


def host_names() -> tuple[str, ...]:
    """The short and the full name of this machine."""
    return (socket.gethostname(), _said(["hostname", "-f"]).strip())


def adapters(folder: Path = INFINIBAND) -> tuple[Adapter, ...]:
    """The InfiniBand adapters with an active port, in order of their names."""
    found = []
    for adapter in sorted(folder.glob("*"), key=lambda path: path.name):
        for port in sorted(adapter.glob("ports/*")):
            rate = re.match(r"(\d+(?:\.\d+)?) Gb/sec", _read(port / "rate"))
            if "ACTIVE" in _read(port / "state") and _read(port / "link_layer") == "InfiniBand" and rate:
                found.append(Adapter(adapter.name, float(rate[1]) * 1e9 / 8))
                break
    return tuple(found)


def interfaces(folder: Path = NET) -> tuple[str, ...]:
    """The network interfaces over InfiniBand that are up."""
    paths = sorted(folder.glob("*"), key=lambda path: path.name)
    return tuple(p.name for p in paths if _read(p / "type") == INFINIBAND_TYPE and _read(p / "operstate") != "down")


def modules(text: str) -> tuple[str, ...]:
    """The modules in `module -t avail`, of Environment Modules and Lmod; the defaults come last."""
    listed = [line.strip() for line in text.splitlines()]
    plain = [(re.sub(r"\([^)]*\)$", "", line), DEFAULT.search(line) is not None) for line in listed]
    named = [(name, default) for name, default in plain if re.fullmatch(r"[A-Za-z0-9][\w.+-]*(/[\w.+-]+)*", name)]
    return tuple(name for name, _ in sorted(named, key=lambda one: one[1]))


def preferred(listed: tuple[str, ...], wanted: tuple[str, ...]) -> str | None:
    """For the first of the wanted names with a module: its default, otherwise the last in the list."""
    for name in wanted:
        if found := [module for module in listed if module.lower().split("/")[0] == name]:
            return found[-1]
    return None


def file_system(folder: Path) -> str:
    """The type in `stat -f` of the file system that `folder` is on, or will be on; '' if unknown."""
    there = next((place for place in (folder, *folder.parents) if place.exists()), Path("/"))
    return _said(["stat", "-f", "-c", "%T", str(there)]).strip()


def is_shared(kind: str) -> bool | None:
    """Whether other machines see such a file system; None if its type does not show it."""
    if SHARED.search(kind):
        return True
    return False if LOCAL_TYPES.search(kind) else None


def _init() -> str:
    return (shipped("templates") / "modules" / "init.sh.j2").read_text(encoding="utf-8")


def _said(argv: list[str]) -> str:
    try:
        return process.run(argv, timeout_s=ASKING_S).stdout
    except SiteError:
        return ""


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""
