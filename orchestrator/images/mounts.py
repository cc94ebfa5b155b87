"""The binds that an image needs beside those of the site, and the variables by which programs find them."""

from __future__ import annotations

from orchestrator.images.command import Bind
from orchestrator.images.definitions.definition import HOST_MPI
from orchestrator.images.definitions.own_training import TRAINING, own_training


def needed(bound_training: bool, host_mpi: str | None = None) -> tuple[Bind, ...]:
    """The host's training package, unless it is inside, and the site's MPI at `host_mpi`, if that one is used."""
    package = (Bind(str(own_training()), f"{TRAINING}/training", read_only=True),) if bound_training else ()
    return (*package, *((Bind(host_mpi, HOST_MPI, read_only=True),) if host_mpi else ()))


def variables(bound_training: bool) -> dict[str, str]:
    """The variables by which every program in the image, rank or check, finds the bound files."""
    return {"PYTHONPATH": TRAINING} if bound_training else {}
