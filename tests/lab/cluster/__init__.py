"""A cluster of four nodes on one Debian machine, shared by several schedulers: see cluster.py and lab.py."""

from .cluster import Cluster
from .lab import Lab
from .processes import Busy, LabError
from .settings import Settings

__all__ = ["Busy", "Cluster", "Lab", "LabError", "Settings"]
