"""What a host and an image provide, found out by running their own programs. An unknown fact is None, never a guess."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from orchestrator import private, process
from orchestrator.containers import compat, probe
from orchestrator.containers.answers import (
    MpiLibrary,
    parse_glibc,
    parse_gpus,
    parse_mpi,
    parse_pmix,
    parse_probe,
    parse_slurm_pmix,
)
from orchestrator.containers.command import ContainerExec, inside
from orchestrator.containers.inputs import file_checksum
from orchestrator.containers.runtime import Runtime, own_environment
from orchestrator.errors import SiteError

ASKING_S = 60.0
NO_PROGRAM = "executable file not found"  # what runtimes say when the container starts, but holds no such program


@dataclass(frozen=True)
class HostFacts:
    """A machine that starts ranks or builds images."""

    runtime: Runtime | None = None
    mpi: MpiLibrary | None = None
    pmix_served: frozenset[int] = frozenset()  # generations that the launcher speaks; empty: not known
    driver: str | None = None
    gpus: tuple[str, ...] = ()  # architectures, as in sm_70
    glibc: str | None = None
    user_namespaces: bool = True
    fakeroot: bool = True
    missing_paths: tuple[str, ...] = ()  # of those that were asked for


@dataclass(frozen=True)
class ImageFacts:
    """An image, from outside and inside."""

    path: str
    readable: bool = True
    unreadable_because: str = ""
    shared: bool = True
    sha256: str | None = None
    python: str | None = None
    glibc: str | None = None
    torch: str | None = None
    torch_error: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    cudnn: str | None = None
    architectures: tuple[str, ...] = ()
    mpi: MpiLibrary | None = None
    training: bool | None = None

    @property
    def versions(self) -> dict[str, str]:
        """The versions found inside, for the run folder and the cache."""
        named = {k: getattr(self, k) for k in ("python", "glibc", "torch", "cuda", "nccl", "cudnn")}
        mpi = {"mpi": f"{self.mpi.family} {self.mpi.version}", "pmix": self.mpi.pmix} if self.mpi else {}
        return {k: str(v) for k, v in {**named, **mpi}.items() if v}


def host(runtime: Runtime | None, launcher: str, paths: Iterable[str] = ()) -> HostFacts:
    """Ask this machine. `launcher` is srun or mpirun; `paths` are those that binds need."""
    mpi = parse_mpi(_said("ompi_info", "--parsable") or _said("mpirun", "--version"))
    own = parse_pmix(parse_probe(_said(sys.executable, probe.__file__, "--host")).get("pmix"))
    if mpi and mpi.family == "openmpi" and mpi.pmix is None:
        mpi = MpiLibrary(
            mpi.family, mpi.version, own or compat.OPENMPI_PMIX.get((compat.version(mpi.version) or (0,))[0])
        )
    served = parse_slurm_pmix(_said("srun", "--mpi=list")) if launcher == "srun" else frozenset()
    if launcher == "mpirun" and mpi and mpi.pmix:
        served = frozenset({mpi.pmix})
    driver, gpus = parse_gpus(_said("nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader"))
    return HostFacts(
        runtime=runtime,
        mpi=mpi,
        pmix_served=served,
        driver=driver,
        gpus=gpus,
        glibc=parse_glibc(_said("ldd", "--version")),
        user_namespaces=_works("unshare", "--user", "true"),
        fakeroot=_has_subids(),
        missing_paths=tuple(path for path in paths if not os.path.exists(path)),
    )


def image(
    path: Path, container: ContainerExec | None, shared: Iterable[str] = (), with_checksum: bool = False
) -> ImageFacts:
    """Ask an image, by running the probe in it unless `container` is None; `shared` are the shared file systems."""
    on_shared = not list(shared) or any(path.resolve().is_relative_to(Path(s).resolve()) for s in shared)
    try:
        with open(private.open_regular(Path(os.path.realpath(path))), "rb") as stream:
            stream.read(1)
    except OSError as error:
        return ImageFacts(str(path), readable=False, unreadable_because=error.strerror or "", shared=on_shared)
    outside = ImageFacts(str(path), shared=on_shared, sha256=file_checksum(path) if with_checksum else None)
    return _examined(outside, container) if container else outside


def _examined(known: ImageFacts, container: ContainerExec) -> ImageFacts:
    try:
        done = _inside(container, "python3", "-c", Path(probe.__file__).read_text(encoding="utf-8"))
    except SiteError as error:
        return ImageFacts(known.path, False, str(error), known.shared, known.sha256)
    if NO_PROGRAM in done.stderr:  # a program of another image may run all the same
        return replace(known, training=False, torch_error="it has no python3")
    if not (found := parse_probe(done.stdout)):
        why = (done.stderr.strip() or "its Python printed nothing").splitlines()[-1]
        return ImageFacts(known.path, False, f"no program runs in it: {why}", known.shared, known.sha256)
    mpi = parse_mpi(_inside(container, "ompi_info", "--parsable").stdout)
    if mpi and mpi.pmix is None:
        mpi = MpiLibrary(mpi.family, mpi.version, parse_pmix(found.get("pmix")))
    names = ("python", "glibc", "torch", "torch_error", "cuda", "nccl", "cudnn", "training")
    told: dict[str, Any] = {name: found.get(name) for name in names}
    return ImageFacts(
        known.path, shared=known.shared, sha256=known.sha256, mpi=mpi,
        architectures=tuple(found.get("architectures", ())), **told,
    )  # fmt: skip


def _inside(container: ContainerExec, *command: str) -> process.Finished:
    # Without --nv: the probe needs no GPU, and a login node has none.
    started = inside(container.only_asked(), command, {}, {})
    shell = own_environment(process.clean_environment())
    return process.run(started.argv, timeout_s=ASKING_S, environment={**shell, **started.environment})


def _works(*argv: str) -> bool:
    try:
        return process.run(argv, timeout_s=ASKING_S).exit_code == 0
    except SiteError:
        return False


def _said(*argv: str) -> str:
    """What a program printed, '' where it is missing, failed or did not answer."""
    try:
        done = process.run(argv, timeout_s=ASKING_S)
    except SiteError:
        return ""
    return done.stdout + done.stderr if done.exit_code == 0 else ""


def _has_subids() -> bool:
    """Whether this user has a range in /etc/subuid and newuidmap to use it."""
    names = {os.environ.get("USER", ""), str(os.getuid())} - {""}
    try:
        lines = Path("/etc/subuid").read_text(encoding="utf-8").splitlines()
    except OSError:
        return False
    return shutil.which("newuidmap") is not None and any(line.split(":")[0] in names for line in lines)
