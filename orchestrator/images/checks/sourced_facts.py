"""The facts of a host and of an image, with their sources. An unknown fact is None, never a guess.

`asked` has one line for each fact: the query and its answer, or why the fact is unknown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from torusrun.orchestrator.images.checks.answers import Library, MpiLibrary
from torusrun.orchestrator.images.runtime import Runtime

NOT_ASKED = "not looked at"


@dataclass(frozen=True)
class HostFacts:
    """A machine that starts ranks or builds images."""

    runtime: Runtime | None = None
    machine: str | None = None  # as `uname -m` names it
    mpi: MpiLibrary | None = None
    slurm_pmi: frozenset[str] | None = None  # the names in `srun --mpi=list`
    pyxis: bool | None = None  # whether srun has its options; None if nobody asked, or srun did not answer
    pmix_served: frozenset[int] = frozenset()  # generations of the launcher; empty if unknown
    driver: str | None = None
    gpus: tuple[str, ...] = ()  # architectures, as in sm_70
    glibc: str | None = None
    user_namespaces: bool = True
    fakeroot: bool = True
    missing_paths: tuple[str, ...] = ()  # of the paths that were queried
    modules_failed: str = ""  # why the site's modules do not load here
    shell_variables: tuple[str, ...] = ()  # of the runtime, set in the user's shell
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
    local_folder: str = ""  # the folder that each node has its own copy of, if the image lies in one
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
    no_program: bool = False  # the program was not found
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
        """The versions found in the image, for the run folder and the cache."""
        named = {k: getattr(self, k) for k in ("python", "glibc", "torch", "cuda", "nccl", "cudnn")}
        mpi = {"mpi": f"{self.mpi.family} {self.mpi.version}", "pmix": self.mpi.pmix} if self.mpi else {}
        return {k: str(v) for k, v in {**named, **mpi}.items() if v}
