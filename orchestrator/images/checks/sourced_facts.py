"""What is known of a host and of an image, and who said so. What nobody could tell is None, never a guess.

`asked` says for a fact what was asked and what answered, in one line. It also says why a fact is not known.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from orchestrator.images.checks.answers import Library, MpiLibrary
from orchestrator.images.runtime import Runtime

NOT_ASKED = "not looked at"


@dataclass(frozen=True)
class HostFacts:
    """A machine that starts ranks or builds images."""

    runtime: Runtime | None = None
    machine: str | None = None  # as `uname -m` names it
    mpi: MpiLibrary | None = None
    slurm_pmi: frozenset[str] | None = None  # what `srun --mpi=list` offers
    pmix_served: frozenset[int] = frozenset()  # generations that the launcher speaks; empty: not known
    driver: str | None = None
    gpus: tuple[str, ...] = ()  # architectures, as in sm_70
    glibc: str | None = None
    user_namespaces: bool = True
    fakeroot: bool = True
    missing_paths: tuple[str, ...] = ()  # of those that were asked for
    modules_failed: str = ""  # why the site's modules do not load here
    shell_variables: tuple[str, ...] = ()  # of the runtime, set in the user's shell
    asked: Mapping[str, str] = field(default_factory=dict)

    def evidence(self, fact: str) -> str:
        """What was asked about a fact, and what answered."""
        return self.asked.get(fact, NOT_ASKED)


@dataclass(frozen=True)
class ImageFacts:
    """An image, from outside and inside.

    `starts` says whether programs run in it here; None where none was started, or where the failure may be this
    machine's. `shared` says whether the nodes see its file.
    """

    path: str
    readable: bool = True
    starts: bool | None = True
    shared: bool | None = True
    local_folder: str = ""  # the folder that every node has its own of, where it lies in one
    machine: str | None = None  # as `uname -m` names it
    foreign: bool = False  # this machine's processor does not run its programs
    shell: bool = True  # whether it has a /bin/sh, which the other questions need
    python: str | None = None
    has_python: bool | None = None
    glibc: str | None = None
    torch: str | None = None
    torch_error: str | None = None
    cuda: str | None = None
    nccl: str | None = None
    cudnn: str | None = None
    architectures: tuple[str, ...] = ()
    mpi: MpiLibrary | None = None
    no_mpi: bool = False  # it was asked, and has none
    training: bool | None = None
    program: Library | None = None  # the command's program and the libraries that it lacks
    no_program: bool = False  # it was looked for, and is not there
    bound_mpi: tuple[Library, ...] = ()  # MPI libraries that `bind` brings, as the image loads them
    verbs: bool | None = None  # whether libibverbs loads
    verbs_error: str = ""
    providers: tuple[str, ...] | None = None  # of libibverbs, as in mlx5
    asked: Mapping[str, str] = field(default_factory=dict)

    def evidence(self, fact: str) -> str:
        """What was asked about a fact, and what answered, or why nothing in the image was asked."""
        return self.asked.get(fact) or self.asked.get("start", NOT_ASKED)

    @property
    def versions(self) -> dict[str, str]:
        """The versions found inside, for the run folder and the cache."""
        named = {k: getattr(self, k) for k in ("python", "glibc", "torch", "cuda", "nccl", "cudnn")}
        mpi = {"mpi": f"{self.mpi.family} {self.mpi.version}", "pmix": self.mpi.pmix} if self.mpi else {}
        return {k: str(v) for k, v in {**named, **mpi}.items() if v}
