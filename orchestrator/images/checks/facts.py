"""The facts of a host and of an image, with their sources. An unknown fact is None, never a guess.

`asked` has a line for each fact: the query and its answer, or why the fact is unknown.
"""

from __future__ import annotations

import os
import platform
import pwd
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.environment import which
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.images.checks.answers import Library, MpiLibrary, parse_gpus, parse_mpi, parse_slurm_pmi
from torusrun.orchestrator.images.pyxis import is_offered
from torusrun.orchestrator.images.runtime import Runtime
from torusrun.orchestrator.schedulers import launchers
from torusrun.orchestrator.schedulers.launchers import Pmi

NOT_ASKED = "not looked at"
ASKING_S = 60.0
NVIDIA_SMI = ("nvidia-smi", "--query-gpu=driver_version,compute_cap", "--format=csv,noheader")


@dataclass(frozen=True)
class HostFacts:
    """A machine that starts ranks or builds images."""

    runtime: Runtime | None = None
    machine: str | None = None  # as `uname -m` names it
    mpi: MpiLibrary | None = None
    slurm_pmi: frozenset[str] | None = None  # the names in `srun --mpi=list`
    pyxis: bool | None = None  # whether srun has its options; None if nobody asked, or srun did not answer
    driver: str | None = None
    gpus: tuple[str, ...] = ()  # architectures, as in sm_70
    user_namespaces: bool = True
    fakeroot: bool = True
    missing_paths: tuple[str, ...] = ()  # of the paths that were queried
    modules_failed: str = ""  # why the site's modules do not load here
    asked: Mapping[str, str] = field(default_factory=dict)

    def evidence(self, fact: str) -> str:
        """The query for a fact, and its answer."""
        return self.asked.get(fact, NOT_ASKED)


@dataclass(frozen=True)
class ImageFacts:
    """An image, from outside and inside.

    `starts` is whether programs run in it here; None if none was started, or if this machine may be the cause of the
    failure. `shared` is whether the nodes see its file.
    """

    path: str
    readable: bool = True
    starts: bool | None = True
    shared: bool | None = True
    local_folder: str = ""  # the folder that each node has its own copy of, if the image lies in such a folder
    machine: str | None = None  # as `uname -m` names it
    foreign: bool = False  # this machine's processor does not run its programs
    shell: bool = True  # whether it has a /bin/sh, which the other queries need
    python: str | None = None
    has_python: bool | None = None
    glibc: str | None = None
    torch: str | None = None
    torch_error: str | None = None
    cuda: str | None = None
    compat: str = ""  # the driver whose libcuda the package cuda-compat has in the image; '' without it
    nccl: str | None = None
    cudnn: str | None = None
    architectures: tuple[str, ...] = ()
    mpi: MpiLibrary | None = None
    training: bool | None = None
    program: Library | None = None  # the command's program with its missing libraries
    no_program: bool = False  # the image lacks the program
    bound_mpi: tuple[Library, ...] = ()  # MPI libraries of `bind`, as the image loads them
    verbs: bool | None = None  # whether libibverbs loads
    verbs_error: str = ""
    providers: tuple[str, ...] | None = None  # of libibverbs, as in mlx5
    asked: Mapping[str, str] = field(default_factory=dict)

    def evidence(self, fact: str) -> str:
        """The query for a fact and its answer, or why nothing in the image was queried."""
        return self.asked.get(fact) or self.asked.get("start", NOT_ASKED)

    @property
    def versions(self) -> dict[str, str]:
        """The versions in the image, for the run folder and the cache."""
        named = {k: getattr(self, k) for k in ("python", "glibc", "torch", "cuda", "nccl", "cudnn")}
        mpi = {"mpi": f"{self.mpi.family} {self.mpi.version}"} if self.mpi else {}
        return {k: str(v) for k, v in {**named, **mpi}.items() if v}


@dataclass
class Asking:
    """Queries of programs on this machine, in one environment; `asked` keeps the queries and the answers."""

    environment: Mapping[str, str] | None = None
    asked: dict[str, str] = field(default_factory=dict)

    def output(self, fact: str, *argv: str) -> str:
        """The output of a program; '' if it is missing, failed or did not answer."""
        question = f"`{' '.join(argv)}`"
        try:
            done = process.run(argv, timeout_s=ASKING_S, environment=self.environment)
        except SiteError as error:
            self.asked[fact] = f"{question}: {error}"
            return ""
        output = done.stdout + done.stderr
        first = next((line.strip() for line in output.splitlines() if line.strip()), "it printed nothing")
        self.asked[fact] = f"{question}: {first}" + (f" (exit code {done.exit_code})" if done.exit_code else "")
        return "" if done.exit_code else output


def host(
    runtime: Runtime | None,
    launcher: str,
    paths: Iterable[str] = (),
    environment: Mapping[str, str] | None = None,
    *,
    pyxis: bool = False,
) -> HostFacts:
    """Query this machine. `launcher` is the site's; `paths` are those that the binds need.

    Programs are searched and run in `environment`, which has the site's modules; default: the current environment.
    """
    asking = Asking(environment)
    pmi = launchers.family(launcher).pmi
    offers = asking.output("slurm_pmi", launcher, "--mpi=list") if pmi is Pmi.SLURM else ""
    mpi = parse_mpi(asking.output("mpi", launcher, "--version")) if pmi is Pmi.MPI else None
    helped = asking.output("pyxis", launcher, "--help") if pyxis else ""
    driver, gpus = parse_gpus(asking.output("gpus", *NVIDIA_SMI))
    return HostFacts(
        runtime=runtime,
        machine=platform.machine(),
        mpi=mpi,
        pyxis=is_offered(helped) if helped else None,
        slurm_pmi=parse_slurm_pmi(offers),
        driver=driver,
        gpus=gpus,
        user_namespaces=_works(asking, "unshare", "--user", "true"),
        fakeroot=_has_subids(),
        missing_paths=tuple(path for path in paths if not os.path.exists(path)),
        asked={**asking.asked, "machine": f"`uname -m`: {platform.machine()}"},
    )


def _works(asking: Asking, *argv: str) -> bool:
    try:
        return process.run(argv, timeout_s=ASKING_S, environment=asking.environment).exit_code == 0
    except SiteError:
        return False


def _has_subids() -> bool:
    """Whether this user has a range in /etc/subuid and newuidmap to use it."""
    names = {str(os.getuid())}
    try:
        names.add(pwd.getpwuid(os.getuid()).pw_name)
        lines = Path("/etc/subuid").read_text(encoding="utf-8").splitlines()
    except (OSError, KeyError):
        return False
    return which("newuidmap") is not None and any(line.split(":")[0] in names for line in lines)
