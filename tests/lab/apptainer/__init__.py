"""A real Apptainer for the lab's ordinary user, with bases to build images from: see lab.py."""

from .lab import ApptainerLab
from .packages import why_not_here

__all__ = ["ApptainerLab", "why_not_here"]
