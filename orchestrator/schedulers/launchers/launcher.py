"""The interface of launchers, which start the ranks of a job. Each has one file, with its command and its messages."""

from __future__ import annotations

import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar

# The variables that a rank's wrapper needs before it reads a file; ssh and the like pass no variables on.
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "TORUSRUN_SCRATCH")


class Pmi(Enum):
    """The software that connects the ranks of an MPI program."""

    NOBODY = "nobody"  # each rank would be rank 0 of 1
    MPI = "mpi"  # the MPI that the launcher belongs to
    SLURM = "slurm"  # a plug-in of Slurm, one of the list of `srun --mpi=list`


@dataclass(frozen=True)
class Launch:
    """The ranks to start. `hostfile` names one host for each rank, in rank order.

    `remote_shell` is a command before HOST COMMAND... that runs COMMAND on another host, None if the launcher needs
    none. `passed` are the variables that the ranks on other hosts get. `mpi`: the ranks may run an MPI program.
    `exported` are the variables of the launcher's own environment that the ranks get; None: all of them. `called` is
    the scheduler's name of the launcher's own host, '' if it is the host's own name, too. `kill_after_s` is how long a
    rank may take to end its program after the request to stop.
    """

    python: str
    nodes: int
    ranks: int
    cpus_per_rank: int
    hostfile: Path
    remote_shell: tuple[str, ...] | None = None
    passed: tuple[str, ...] = ()
    mpi: bool = False
    exported: tuple[str, ...] | None = None
    called: str = ""
    kill_after_s: float = 30.0


@dataclass(frozen=True)
class Words:
    """A launcher's messages: lost hosts, each with the line that says so; ranks that a signal ended, with its number;
    the last message, on one line; and why our remote shell could not reach a host, which the launcher itself does not
    know."""

    lost: Mapping[str, str] = field(default_factory=dict)
    killed: Mapping[int, int] = field(default_factory=dict)
    last: str = ""
    unreached: str = ""


class Launcher(ABC):
    """Starts ranks in the order of a host file, without binding them to cores: the wrapper of a rank does that."""

    kills: ClassVar[re.Pattern[str] | None] = None  # finds a rank that a signal ended, and the signal's number
    numbers: ClassVar[tuple[str, str]]  # the variables with a rank's number, and with its number on its host
    needs_shell: ClassVar[bool] = False  # whether it reaches other hosts by a remote shell only
    stop_signal: ClassVar[signal.Signals] = signal.SIGUSR2  # it passes this on to the ranks, and must pass SIGUSR1 too
    pmi: ClassVar[Pmi] = Pmi.MPI
    one_node: ClassVar[bool] = False  # whether it starts ranks on its own machine only
    pyxis: ClassVar[bool] = False  # whether it can have this plug-in, which starts the ranks in a container
    built_in: ClassVar[bool] = False  # whether it is a part of torusrun, not a program on PATH

    def __init__(self, program: str) -> None:
        self.program = program

    @abstractmethod
    def command(self, launch: Launch) -> list[str]:
        """The launcher with its arguments; the site's arguments and a rank's program follow them."""

    def environment(self, launch: Launch) -> dict[str, str]:
        """The variables that the launcher itself needs."""
        return {}

    @classmethod
    def lost(cls, text: str) -> dict[str, str]:
        """The lost hosts in the launcher's messages, each with the line that says so."""
        return {}

    @classmethod
    def reason(cls, text: str) -> str:
        """Why no rank started, if the launcher's messages say so before the last one; else ''."""
        return ""

    @classmethod
    def killed(cls, text: str) -> dict[int, int]:
        """The ranks that a signal ended, in the launcher's messages, each with its first signal."""
        found = cls.kills.findall(text) if cls.kills else ()
        return firsts([(int(rank), int(number)) for rank, number in found])


def firsts(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The first value of each key."""
    return dict(reversed(pairs))
