"""The kinds of mismatch: why each matters and how to mend it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Severity = Literal["error", "warning"]

# kind: (why it matters, how to mend it)
KINDS: dict[str, tuple[str, str]] = {
    "runtime-missing": (
        "no image can be built or run",
        "load the module of apptainer or singularity, or set 'container.runtime' of the site",
    ),
    "runtime-old": ("it cannot start a rank with a clean environment", "load a newer module of it"),
    "no-fakeroot": (
        "installing packages into an image needs it",
        "ask for an entry in /etc/subuid, build in a job or elsewhere, or name a finished SIF as 'image'",
    ),
    "no-user-namespaces": ("an image cannot be built without root", "build on another machine and copy the SIF"),
    "bind-missing": ("every rank would fail to start", "correct 'container.bind' of the site, or make the folder"),
    "base-without-digest": (
        "its tag can become another image, and a rebuild another result",
        "put the digest that `skopeo inspect` shows into 'base.digest' of the image file",
    ),
    "image-unreadable": ("no rank can start", "make it readable for you, or build it again"),
    "image-not-shared": ("the nodes do not see it", "set 'container.cache' of the site to a folder that they share"),
    "digest-changed": ("the run would continue with other software", "name the old image, or resume with --new-image"),
    "driver-old": ("CUDA would not start", "take an image with an older CUDA, as pytorch-v100"),
    "torch-without-cuda": ("the GPUs would be idle", "take an image with a CUDA build of torch"),
    "gpu-architecture": (
        "it imports, and fails at its first kernel: 'no kernel image is available'",
        "take a torch built for these GPUs; for V100 (sm_70) one of the cu126 index, as in pytorch-v100",
    ),
    "mpi-missing": (
        "an MPI program cannot start in it",
        "give the image file an 'mpi', or set 'container.mpi: host' of the site",
    ),
    "mpi-family": (
        "an MPI program's ranks do not find each other",
        "load a module of the image's family, or bind the host's MPI",
    ),
    "mpi-major": (
        "Open MPI promises to work together only within a major version",
        "load a module of the same major version, or build the image with it",
    ),
    "pmix": (
        "a rank cannot communicate with its launcher",
        "build the image with an MPI of that PMIx generation, or use another launcher",
    ),
    "glibc-old": (
        "the host's MPI libraries do not load there ('GLIBC_... not found')",
        "take a base as new as the host, or an image with its own MPI",
    ),
    "torch-broken": ("no training can start", "correct 'python' of the image file and build again"),
    "training-missing": (
        "`python -m training` would fail on every rank",
        "set 'training: inside' in the image file and build again, or use 'training: bound'",
    ),
}


@dataclass(frozen=True)
class Finding:
    """One mismatch: what it is, why it matters, and how to mend it."""

    kind: str
    what: str
    severity: Severity = "error"

    @property
    def why(self) -> str:
        return KINDS[self.kind][0]

    @property
    def mend(self) -> str:
        return KINDS[self.kind][1]

    def __str__(self) -> str:
        return f"{self.severity}: {self.what}: {self.why}; {self.mend}"
