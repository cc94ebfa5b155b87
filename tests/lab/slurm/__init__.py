"""A real Slurm on the labs' cluster: see lab.py."""

from .lab import SlurmLab

__all__ = ["SlurmLab"]
