"""What a host and an image are, asked of them by their own programs. A fact that cannot be had is None, never a guess."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orchestrator import process
from orchestrator.containers import compat, probe
from orchestrator.containers.command import Container, inside
from orchestrator.containers.inputs import file_sum
from orchestrator.containers.runtime import Runtime
from orchestrator.errors import SiteError

ASKING_S = 60.0


@dataclass(frozen=True)
class Mpi:
    """An MPI: its family (openmpi, mpich, intel) and version as it says them, and the PMIx generation it speaks."""

    family: str
    version: str
    pmix: int | None = None


@dataclass(frozen=True)
class HostFacts:
    """A machine that starts ranks or builds."""

    runtime: Runtime | None = None
    mpi: Mpi | None = None
    pmix_served: frozenset[int] = frozenset()  # generations that whoever starts the ranks speaks; empty: not known
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
    mpi: Mpi | None = None
    training: bool | None = None

    @property
    def versions(self) -> dict[str, str]:
        """The versions found inside, for the run folder and the cache."""
        named = {k: getattr(self, k) for k in ("python", "glibc", "torch", "cuda", "nccl", "cudnn")}
        mpi = {"mpi": f"{self.mpi.family} {self.mpi.version}", "pmix": self.mpi.pmix} if self.mpi else {}
        return {k: str(v) for k, v in {**named, **mpi}.items() if v}


def parse_mpi(said: str) -> Mpi | None:
    """The MPI from `ompi_info --parsable`, or from `mpirun --version` of any family."""
    if match := re.search(r"^ompi:version:full:(\S+)", said, re.MULTILINE):
        embedded = re.search(r"^mca:pmix:pmix(\d)", said, re.MULTILINE)
        return Mpi("openmpi", match[1], int(embedded[1]) if embedded else None)
    for family, pattern in (
        ("openmpi", r"\(Open MPI\) (\S+)"),
        ("intel", r"Intel\(R\) MPI Library.*Version (\S+)"),
        ("mpich", r"(?:HYDRA build details|MPICH)[\s\S]*?Version:\s+(\S+)"),
    ):
        if match := re.search(pattern, said):
            return Mpi(family, match[1])
    return None


def parse_pmix(said: str | None) -> int | None:
    """The generation from what libpmix says it is, as in 'OpenPMIx 4.2.2 (...)'."""
    match = re.search(r"(\d+)\.\d+", said or "")
    return int(match[1]) if match else None


def parse_slurm_pmix(said: str) -> frozenset[int]:
    """The PMIx generations that `srun --mpi=list` offers."""
    return frozenset(int(n) for n in re.findall(r"pmix_v(\d+)", said))


def parse_gpus(said: str) -> tuple[str | None, tuple[str, ...]]:
    """(driver, architectures) from `nvidia-smi --query-gpu=driver_version,compute_cap --format=csv,noheader`."""
    rows = re.findall(r"^\s*(\d+(?:\.\d+)+)\s*,\s*(\d+)\.(\d)\s*$", said, re.MULTILINE)
    return (rows[0][0] if rows else None), tuple(sorted({f"sm_{major}{minor}" for _, major, minor in rows}))


def parse_glibc(said: str) -> str | None:
    """The version from the first line of `ldd --version`; None for another C library."""
    first = said.splitlines()[0] if said else ""
    match = re.search(r"(\d+\.\d+)\s*$", first) if re.search("GLIBC|GNU libc", first, re.IGNORECASE) else None
    return match[1] if match else None


def parse_probe(said: str) -> dict[str, Any]:
    """What the probe printed, whatever stands around it; {} when it printed nothing."""
    match = re.search(r"^TORUSRUN-PROBE (\{.*\})$", said, re.MULTILINE)
    return dict(json.loads(match[1])) if match else {}


def host(runtime: Runtime | None, launcher: str, paths: Iterable[str] = ()) -> HostFacts:
    """Ask this machine. `launcher` is srun or mpirun; `paths` are those that binds need."""
    mpi = parse_mpi(_said("ompi_info", "--parsable") or _said("mpirun", "--version"))
    own = parse_pmix(parse_probe(_said(sys.executable, probe.__file__, "--host")).get("pmix"))
    if mpi and mpi.family == "openmpi" and mpi.pmix is None:
        mpi = Mpi(mpi.family, mpi.version, own or compat.OPENMPI_PMIX.get((compat.version(mpi.version) or (0,))[0]))
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
        user_namespaces=process.run(["unshare", "--user", "true"], timeout_s=ASKING_S).exit_code == 0,
        fakeroot=_has_subids(),
        missing_paths=tuple(path for path in paths if not os.path.exists(path)),
    )


def image(path: Path, container: Container | None, shared: Iterable[str] = (), sum_it: bool = False) -> ImageFacts:
    """Ask an image, by running the probe in it unless `container` is None; `shared` are the shared file systems."""
    on_shared = not list(shared) or any(path.resolve().is_relative_to(Path(s).resolve()) for s in shared)
    try:
        with open(path, "rb") as stream:
            stream.read(1)
    except OSError as error:
        return ImageFacts(str(path), readable=False, unreadable_because=error.strerror or "", shared=on_shared)
    outside = ImageFacts(str(path), shared=on_shared, sha256=file_sum(path) if sum_it else None)
    return _examined(outside, container) if container else outside


def _examined(known: ImageFacts, container: Container) -> ImageFacts:
    done = _inside(container, "python3", "-c", Path(probe.__file__).read_text(encoding="utf-8"))
    if not (found := parse_probe(done.stdout)):
        why = (done.stderr.strip() or "its Python said nothing").splitlines()[-1]
        return ImageFacts(known.path, False, f"nothing can be run in it: {why}", known.shared, known.sha256)
    mpi = parse_mpi(_inside(container, "ompi_info", "--parsable").stdout)
    if mpi and mpi.pmix is None:
        mpi = Mpi(mpi.family, mpi.version, parse_pmix(found.get("pmix")))
    told = {k: found.get(k) for k in ("python", "glibc", "torch", "torch_error", "cuda", "nccl", "cudnn", "training")}
    return ImageFacts(
        known.path, shared=known.shared, sha256=known.sha256, mpi=mpi,
        architectures=tuple(found.get("architectures", ())), **told,
    )  # fmt: skip


def _inside(container: Container, *command: str) -> process.Finished:
    # Without --nv: the probe needs no GPU, and a login node has none.
    plain = Container(container.runtime, container.image, container.binds, directory="/")
    return process.run(inside(plain, command, {}, {}).argv, timeout_s=ASKING_S)


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
