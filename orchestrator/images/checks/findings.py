"""What a run needs of its image and its site, and the mismatches: why each matters and how to correct it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torusrun.orchestrator.schedulers import launchers
from torusrun.orchestrator.schedulers.launchers import Pmi

Outcome = Literal["does not fit", "could not be looked at", "fits"]
Severity = Literal["error", "warning", "note"]
ORDER = ("error", "warning", "note")

# kind: (why it matters, how to correct it)
KINDS: dict[str, tuple[str, str]] = {
    "runtime-missing": ("no image can be built or run",
        "load the module of apptainer or singularity, or set 'container.runtime' of the site"),
    "pyxis-missing": ("no rank can start in an image",
        "ask the administrators for Pyxis, load Slurm's module that has it, or name another 'container.runtime'"),
    "modules": ("a job, which loads them first, would end at once", "correct 'environment.modules' of the site"),
    "runtime-old": ("it cannot start a rank with a clean environment", "load a newer module of it"),
    "bind-missing": ("every rank would fail to start", "correct 'container.bind' of the site, or make the folder"),
    "image-unreadable": ("no rank can start", "correct 'image', or make the file readable for you"),
    "image-broken": ("no rank can start", "build it again, or copy it again from where it came"),
    "image-architecture": ("none of its programs runs on this processor ('exec format error')",
        "build the image on a machine with the nodes' processor, or pull the variant of its tag that is for it"),
    "image-not-shared": ("the nodes do not see it",
        "copy it to a folder that they share, or set 'container.cache' of the site to one and build it there"),
    "program-missing": ("every rank would end with 'not found'",
        "correct 'command', or install the program in the image"),
    "python-missing": ("torusrun's training is a Python program",
        "take an image with Python and torch, or add 'python' to the image file; a run with 'command' needs none"),
    "python-old": ("torusrun's training does not run on it",
        "take a base with a newer Python, such as debian:bookworm; a run with 'command' may use any"),
    "pyxis-python": ("Pyxis starts the wrapper of a rank in the image, and that is a Python program",
        "take an image with Python 3.10 or newer, or a site with Apptainer, where a command needs none"),
    "torch-missing": ("torusrun's training needs it",
        "add torch to 'python.packages' of the image file, or take an image with torch"),
    "torch-old": ("torusrun's training does not run on it", "take an image with a newer torch"),
    "torch-broken": ("no training can start",
        "install what the message names, or build the image again with a torch that fits its base"),
    "torch-without-cuda": ("the GPUs would be idle",
        "take an image with a CUDA build of torch, or set 'train.device: cpu'"),
    "gpu-architecture": ("it imports, and fails at its first kernel: 'no kernel image is available'",
        "take a torch built for these GPUs; for V100 (sm_70) one of the cu126 index, as in pytorch-v100"),
    "driver-old": ("CUDA would not start without cuda-compat",
        "take an image with an older CUDA, such as pytorch-v100, or name its cuda-compat in LD_LIBRARY_PATH of 'env'"),
    "training-missing": ("`python -m torusrun.training` would fail on every rank",
        "set 'training: inside' in the image file and build again, or use 'training: bound'"),
    "mpi-spawn": ("the run would look successful", "name a site with 'launcher: mpirun'"),
    "mpi-missing": ("an MPI program cannot start in it",
        "give the image file an 'mpi', or bind the site's: 'container.host_mpi'"),
    "mpi-family": ("the ranks of an MPI program do not find each other: each one runs alone",
        "load a module of the image's family, or take an image with the launcher's"),
    "mpi-major": ("Open MPI is compatible only within a major version",
        "load a module of the same major version, or build the image with it"),
    "slurm-pmi": ("a rank cannot communicate with srun",
        "set 'launcher: mpirun' of the site and load its module, or have Slurm's plugin installed"),
    "host-mpi-libraries": ("the host's MPI does not load in the image",
        "bind the folders of these libraries ('container.bind') and name them in LD_LIBRARY_PATH of 'env'; for glibc "
        "take a base as new as the host, or an image with its own MPI"),
    "verbs-missing": ("NCCL falls back to TCP without a warning, at a fraction of the bandwidth",
        "add libibverbs1, ibverbs-providers and librdmacm1 to 'system' of the image file and build again"),
}  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """The result of one check. `evidence` has the query and its answer."""

    kind: str
    what: str
    severity: Severity = "error"
    evidence: str = ""
    outcome: Outcome = "does not fit"

    @property
    def why(self) -> str:
        return KINDS[self.kind][0]

    @property
    def mend(self) -> str:
        return KINDS[self.kind][1] if self.outcome == "does not fit" else ""

    def __str__(self) -> str:
        if self.outcome != "does not fit":
            return f"{self.outcome}: {self.what}"
        return f"{self.severity}: {self.what}: {self.why}; {self.mend}"

    @property
    def place(self) -> int:
        """The position in a list: errors, warnings, unknown results, matches."""
        return len(ORDER) if self.outcome == "fits" else ORDER.index(self.severity)

    def as_json(self) -> dict[str, Any]:
        names = ("kind", "outcome", "severity", "what", "why", "mend", "evidence")
        return {name: getattr(self, name) for name in names}


def fits(kind: str, what: str, evidence: str = "") -> Finding:
    """A check without a mismatch."""
    return Finding(kind, what, "note", evidence, "fits")


def unknown(kind: str, what: str, evidence: str = "") -> Finding:
    """A check without a result; `what` says how to get a result."""
    return Finding(kind, what, "note", evidence, "could not be looked at")


@dataclass(frozen=True)
class Wanted:
    """A run to be checked.

    `calls_mpi` is whether the program calls MPI: "no" (torusrun's own training), "yes" (it is linked with MPI), or
    "maybe" (a command whose libraries are unknown). `srun_mpi` is the value of --mpi in the site's launcher_args.
    """

    training: bool = True  # torusrun's own training; else a command
    calls_mpi: Literal["no", "maybe", "yes"] = "no"
    host_mpi: str | None = None  # the folder in the image at which the site's MPI is bound
    launcher: str = "spawn"
    srun_mpi: str = ""
    cluster: bool = False  # the run uses other machines than this one
    nodes: int = 1
    ranks: int = 1  # of all nodes together
    uses_gpus: bool = False
    gpus: tuple[str, ...] = ()  # architectures of the site's GPUs, if the site names them
    driver: str | None = None  # the nodes' driver, if the site names it
    hcas: tuple[str, ...] = ()  # the site's InfiniBand adapters
    pyxis: bool = False  # srun itself starts the ranks in the image

    @property
    def pmi(self) -> Pmi:
        """The kind of program that connects the ranks of an MPI program, if any."""
        return launchers.family(self.launcher).pmi
