"""The image with PyTorch for real trainings, built by the ordinary user from wheels, without network."""

from __future__ import annotations

import os
import shutil
import sys
from importlib import metadata
from pathlib import Path

from tests.lab.cluster.processes import LabError, run
from tests.lab.slurm import SlurmLab

DEFINITION = Path(__file__).with_name("torch.def")
PACKAGES = ["torch", "scikit-learn", "pillow"]
COMPRESSION = "-comp lz4"  # by far the fastest, see benchmarks/containers.py


def requirements() -> list[str]:
    """This Python's versions of PyTorch, scikit-learn and Pillow, so that results are equal to the bit."""
    try:
        return [f"{package}=={metadata.version(package)}" for package in PACKAGES]
    except metadata.PackageNotFoundError as missing:
        raise LabError(f"{missing.name} is not in this Python: pip install -e '.[train]'") from None


def make_wheelhouse(entry: Path, python_version: str) -> None:
    """Download the wheels for the image's Python, through pip with this machine's configuration."""
    pip = [sys.executable, "-m", "pip", "download", "--quiet", "--only-binary=:all:"]
    run([*pip, f"--python-version={python_version}", f"--dest={entry}", *requirements()], timeout_s=900)


def make_torch(entry: Path, lab: SlurmLab, base: Path, wheelhouse: Path) -> None:
    shutil.copyfile(DEFINITION, entry / "torch.def")
    shutil.chown(entry, lab.settings.user)
    try:
        lab.run_as_user(torch_argv(entry, base, wheelhouse), timeout_s=900, cwd=entry, check=True)
    finally:
        for path in [entry, *entry.iterdir()]:
            os.chown(path, 0, 0)


def torch_argv(entry: Path, base: Path, wheelhouse: Path) -> list[str]:
    inputs = [f"base={base}", f"requirements={' '.join(requirements())}"]
    return [
        *("apptainer", "build", "--bind", f"{wheelhouse}:/mnt:ro", "--mksquashfs-args", COMPRESSION),
        *(f"--build-arg={value}" for value in inputs),
        str(entry / "torch.sif"),
        str(entry / "torch.def"),
    ]
