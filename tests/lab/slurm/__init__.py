"""A real Slurm cluster of up to eight nodes on one Debian machine: see lab.py."""

from .lab import SlurmLab
from .processes import LabError
from .settings import Settings

__all__ = ["LabError", "Settings", "SlurmLab"]
