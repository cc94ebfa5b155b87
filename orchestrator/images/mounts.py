"""torusrun's own training package and the site's MPI: their places in images, and the binds that bring them in."""

from __future__ import annotations

from pathlib import Path

from torusrun.orchestrator.base.errors import UserError
from torusrun.orchestrator.base.process import ENTRY
from torusrun.orchestrator.base.shipped import ROOT
from torusrun.orchestrator.images.command import Bind

TRAINING = "/opt/torusrun"  # the folder in images that holds `training`
ON_PATH = f"{TRAINING}/{ENTRY}"  # below it: the folder with the package `torusrun`, for scripts
HOST_MPI = "/opt/host-mpi"  # the mount point of a site's own MPI


def own_training() -> Path:
    """The training package on this machine, which is copied into images or bound."""
    package = ROOT / "training"
    if (package / "__main__.py").is_file():
        return package
    raise UserError(f"{package}: the training package is missing; reinstall torusrun")


def needed(bound_training: bool, host_mpi: str | None = None) -> tuple[Bind, ...]:
    """The host's training package, unless it is inside, and the site's MPI at `host_mpi`, if that one is used."""
    package = (Bind(str(own_training()), f"{TRAINING}/training", read_only=True),) if bound_training else ()
    return (*package, *((Bind(host_mpi, HOST_MPI, read_only=True),) if host_mpi else ()))


def variables(bound_training: bool) -> dict[str, str]:
    """The variables by which every program in the image, rank or check, finds the bound files."""
    return {"PYTHONPATH": ON_PATH} if bound_training else {}
