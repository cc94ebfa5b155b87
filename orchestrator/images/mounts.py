"""What an image needs bound into it beside what the site asks for, and the variables that make it be found."""

from __future__ import annotations

from orchestrator.images.command import Bind
from orchestrator.images.definitions.definition import HOST_MPI
from orchestrator.images.definitions.own_training import TRAINING, own_training


def needed(bound_training: bool, host_mpi: str | None = None) -> tuple[Bind, ...]:
    """The host's training package, unless it is inside, and the site's MPI at `host_mpi`, where it uses that one."""
    package = (Bind(str(own_training()), f"{TRAINING}/training", read_only=True),) if bound_training else ()
    return (*package, *((Bind(host_mpi, HOST_MPI, read_only=True),) if host_mpi else ()))


def variables(bound_training: bool) -> dict[str, str]:
    """What every program in the image is given, ranks and checks alike, so that it finds what is bound."""
    return {"PYTHONPATH": TRAINING} if bound_training else {}
