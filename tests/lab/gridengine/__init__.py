"""A real Grid Engine on the labs' cluster: see lab.py."""

from .lab import GridEngineLab

__all__ = ["GridEngineLab"]
