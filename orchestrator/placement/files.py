"""A placement in the forms that launchers read."""

from __future__ import annotations

from orchestrator.placement.mapping import Placement


def hostfile(placement: Placement) -> str:
    """One host per rank, in rank order: SLURM_HOSTFILE of `srun --distribution=arbitrary`."""
    return "".join(f"{seat.host}\n" for seat in placement.seats)


def rankfile(placement: Placement, cores: int) -> str:
    """Open MPI's rankfile: each rank's host, and every core of it, since naming one core binds the rank to it."""
    return "".join(f"rank {seat.rank}={seat.host} slot=0-{cores - 1}\n" for seat in placement.seats)
