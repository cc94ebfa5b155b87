"""A stand-in for nvcr.io/nvidia/pytorch: Debian's Python with the variables and the layout of NGC's image, no PyTorch.

docs/guides/ngc.md has the sources of what is here.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

from . import archives, brought

REFERENCE = "nvcr.io/nvidia/pytorch:25.12-py3"
ENVIRONMENT = [
    "PATH=/usr/local/mpi/bin:/usr/local/nvidia/bin:/usr/local/cuda/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:"
    "/usr/bin:/sbin:/bin:/usr/local/ucx/bin:/opt/tensorrt/bin",
    "LD_LIBRARY_PATH=/usr/local/cuda/compat/lib:/usr/local/nvidia/lib:/usr/local/nvidia/lib64",
    "NVIDIA_PYTORCH_VERSION=25.12",
    "NVIDIA_REQUIRE_CUDA=cuda>=9.0",
    "TORCH_CUDA_ARCH_LIST=7.5 8.0 8.6 9.0 10.0 12.0+PTX",
    "_CUDA_COMPAT_PATH=/usr/local/cuda/compat",
    "OPAL_PREFIX=/opt/hpcx/ompi",
    "OMPI_MCA_coll_hcoll_enable=0",
    "OPENMPI_VERSION=4.1.4",  # Debian's; the real one is newer
    "PIP_CONSTRAINT=/etc/pip/constraint.txt",
    "PIP_BREAK_SYSTEM_PACKAGES=1",
    "PIP_DEFAULT_TIMEOUT=100",
    "BASH_ENV=/etc/bash.bashrc",
    "ENV=/etc/shinit_v2",
    "SHELL=/bin/bash",
    "LC_ALL=C.UTF-8",
]
BANNER = "=== the banner of NGC ==="
ENTRYPOINT = "/opt/nvidia/nvidia_entrypoint.sh"
FILES = {
    "opt/nvidia/nvidia_entrypoint.sh": f'#!/bin/bash\necho "{BANNER}"\nexec "$@"\n',
    "etc/shinit_v2": "",
    "etc/pip/constraint.txt": "pinned==1.0\n",
    "workspace/README.md": "",
}
LINKS = {
    "usr/local/mpi": "/opt/hpcx/ompi",
    "usr/bin/python": "python3",
    "opt/hpcx/ompi/bin/mpirun": "/usr/bin/mpirun.openmpi",
    "opt/hpcx/ompi/lib": "/usr/lib",
    "opt/hpcx/ompi/share/openmpi": "/usr/share/openmpi",
}


def write(archive: Path, debian: Path) -> None:
    """Write it as an archive of Docker with two layers: a root folder of Debian, and NGC's own files."""
    with tempfile.TemporaryDirectory() as name:
        own = Path(name)
        for path, text in FILES.items():
            (own / path).parent.mkdir(parents=True, exist_ok=True)
            (own / path).write_text(text)
        (own / ENTRYPOINT.lstrip("/")).chmod(0o755)
        for link, target in LINKS.items():
            (own / link).parent.mkdir(parents=True, exist_ok=True)
            (own / link).symlink_to(target)
        started = {"Entrypoint": [ENTRYPOINT], "WorkingDir": "/workspace"}
        archives.write_docker(archive, [debian, own], ENVIRONMENT, started)


def write_requirements(folder: Path, version: str) -> None:
    """Write requirements.txt, which wants the version of `pinned` in a wheel beside it."""
    wheel = brought.wheel(folder, "pinned", version)
    (folder / "requirements.txt").write_text(f"./{wheel.name}\n")
