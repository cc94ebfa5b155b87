"""A login node with a real sshd, and a laptop: a network namespace without a scheduler's commands."""

from .laptop import Laptop
from .sshd import LoginNode

__all__ = ["Laptop", "LoginNode"]
