"""What starts the ranks of a job: the interface. A launcher is one file, its command and its messages together."""

from __future__ import annotations

import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar

# What a rank's wrapper needs before it has read anything; ssh and the like pass no variables on.
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "TORUSRUN_SCRATCH")


class Pmi(Enum):
    """Who connects the ranks of an MPI program."""

    NOBODY = "nobody"  # each would be rank 0 of 1
    MPI = "mpi"  # the MPI that the launcher belongs to
    SLURM = "slurm"  # a plug-in of Slurm's, one of those that `srun --mpi=list` lists


@dataclass(frozen=True)
class Launch:
    """What is to be started. `hostfile` names one host for each rank, in rank order.

    `remote_shell` is a command that runs on another host what follows it (HOST COMMAND...), where the launcher is to
    use it. `passed` are the variables that the ranks on other hosts get. `mpi` says that they may run an MPI program.
    """

    python: str
    nodes: int
    ranks: int
    cpus_per_rank: int
    hostfile: Path
    remote_shell: tuple[str, ...] | None = None
    passed: tuple[str, ...] = ()
    mpi: bool = False


@dataclass(frozen=True)
class Words:
    """What a launcher wrote: hosts that it lost, each with the line that says so; ranks that a signal ended, with its
    number; the last thing that it said, on one line; and why our remote shell reached no other host, which it cannot
    know."""

    lost: Mapping[str, str] = field(default_factory=dict)
    killed: Mapping[int, int] = field(default_factory=dict)
    last: str = ""
    unreached: str = ""


class Launcher(ABC):
    """How ranks are started in the order of a host file, and bound to no cores: the wrapper of a rank does that."""

    kills: ClassVar[re.Pattern[str] | None] = None  # finds a rank that a signal ended, and the signal's number
    numbers: ClassVar[tuple[str, str]]  # the variables that tell a rank its number, and its number on its host
    needs_shell: ClassVar[bool] = False  # whether it reaches other hosts by a remote shell only
    stop_signal: ClassVar[signal.Signals] = signal.SIGUSR2  # passed on to the ranks; SIGUSR1 must be, too
    pmi: ClassVar[Pmi] = Pmi.MPI
    one_node: ClassVar[bool] = False  # whether it starts ranks on its own machine only
    built_in: ClassVar[bool] = False  # whether it is a part of torusrun, and no program on PATH

    def __init__(self, program: str) -> None:
        self.program = program

    @abstractmethod
    def command(self, launch: Launch) -> list[str]:
        """The launcher with its arguments; those of the site, and the program of a rank, follow."""

    def environment(self, launch: Launch) -> dict[str, str]:
        """The variables that the launcher itself needs."""
        return {}

    @classmethod
    def lost(cls, text: str) -> dict[str, str]:
        """The hosts that were lost by what the launcher wrote, each with the line that says so."""
        return {}

    @classmethod
    def killed(cls, text: str) -> dict[int, int]:
        """The ranks that a signal ended by what the launcher wrote; the first one of several counts."""
        found = cls.kills.findall(text) if cls.kills else ()
        return firsts([(int(rank), int(number)) for rank, number in found])


def firsts(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The first value of each key."""
    return dict(reversed(pairs))
