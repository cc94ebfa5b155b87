"""The launchers, which start the ranks of a job: srun, Open MPI's mpirun, Hydra (MPICH, Intel MPI) and spawn.

Messages of srun: launch.c and step_launch.c; seen from 22.05.8.

Open MPI from 4.0 on; from 5.0 on it is PRRTE's prterun with other options. Its messages: help-errmgr-base.txt and help-
orterun.txt; seen from 4.1.4 and 5.0.11, a lost host from 4.1.4 only.

Hydra seen from MPICH 4.0.2 and Intel MPI 2021.18. Neither names a lost host. MPICH does not name the rank that a signal
ended: it prints the PID of another rank.
"""

from __future__ import annotations

import re
import signal
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import ClassVar

from torusrun.orchestrator.base import process
from torusrun.orchestrator.base.errors import SiteError
from torusrun.orchestrator.place.hosts.hostlist import numbers

# The variables that a rank's wrapper needs before it reads a file; ssh and the like pass no variables on.
PASSED = ("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", "TORUSRUN_SCRATCH")
LOST_BY_SRUN = re.compile(r"srun: error: Node failure on (\S+)")
KILLED = re.compile(r"^srun: error: \S+: tasks? ([\d,-]+): ([A-Z][A-Za-z ]+?)(?: \(core dumped\))?$", re.MULTILINE)
# Pyxis and the output of enroot: on 22.05.8 with the host, on older versions without it.
PYXIS = re.compile(r"^(?:slurmstepd(?:-(\S+))?|srun): error: pyxis: +(\S.*)$", re.MULTILINE)
OF_ENROOT = "[ERROR] "
NO_REASON = re.compile(r"child \d+ failed with error code|printing enroot log file")
# strsignal(3) in English, which srun prints.
SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}
LOST_BY_MPIRUN = re.compile(
    r"(?:ORTE|PRTE) has lost communication with a remote daemon\..*?Remote daemon: *\S+ on node (\S+)", re.DOTALL
)
PRRTE = 5  # the first version that is built on PRRTE
OWN_PLACES = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "disable"}  # else Intel MPI uses the scheduler's; from its manual
EXTRA_WORDS = ("HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS")  # MPICH's, and Intel's


class Pmi(Enum):
    """The software that connects the ranks of an MPI program."""

    NOBODY = "nobody"  # each rank would be rank 0 of 1
    MPI = "mpi"  # the MPI that the launcher belongs to
    SLURM = "slurm"  # a plug-in of Slurm, from the list of `srun --mpi=list`


@dataclass(frozen=True)
class Launch:
    """The ranks to start."""

    python: str
    nodes: int
    ranks: int
    cpus_per_rank: int
    hostfile: Path  # names one host for each rank, in rank order
    remote_shell: tuple[str, ...] | None = None  # the words before HOST COMMAND...; None if it needs no other host
    passed: tuple[str, ...] = ()  # the variables that the ranks on other hosts get
    mpi: bool = False  # whether the ranks may run an MPI program
    exported: tuple[str, ...] | None = None  # the launcher's own variables that the ranks get; None: all of them
    called: str = ""  # the scheduler's name of the launcher's own host; '' if it is the host's own name, too
    uneven: bool = False  # whether its hosts have unequal numbers of ranks
    kill_after_s: float = 30.0  # how long a rank may take to end its program after the request to stop


@dataclass(frozen=True)
class Words:
    """A launcher's messages."""

    lost: Mapping[str, str] = field(default_factory=dict)  # hosts, each with the line that says so
    killed: Mapping[int, int] = field(default_factory=dict)  # ranks that a signal ended, with its number
    last: str = ""  # the last message, on one line
    unreached: str = ""  # why our remote shell could not reach a host, which the launcher itself does not know


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
        """Why no rank started, if the launcher says so before its last message; else ''."""
        return ""

    @classmethod
    def killed(cls, text: str) -> dict[int, int]:
        """The ranks that a signal ended, in the launcher's messages, each with its first signal."""
        ended = cls.kills.findall(text) if cls.kills else ()
        return firsts([(int(rank), int(number)) for rank, number in ended])


def firsts(pairs: Sequence[tuple[int, int]]) -> dict[int, int]:
    """The first value of each key."""
    return dict(reversed(pairs))


class Srun(Launcher):
    """Starts the ranks as one step of the job."""

    numbers = ("SLURM_PROCID", "SLURM_LOCALID")
    pmi = Pmi.SLURM
    pyxis = True

    def command(self, launch: Launch) -> list[str]:
        # Slurm orders hosts by name or by its topology; only a host file with arbitrary distribution keeps an order.
        return [
            self.program,
            f"--nodes={launch.nodes}",
            f"--ntasks={launch.ranks}",
            "--distribution=arbitrary",
            f"--cpus-per-task={launch.cpus_per_rank}",
            "--cpu-bind=none",
            *(() if launch.mpi else ("--mpi=none",)),
            "--kill-on-bad-exit=1",
            # Slurm 22.05 keeps the cores of a step that lost a host if its hosts had unequal numbers of ranks.
            *(("--overlap",) if launch.uneven else ()),
            f"--export={'ALL' if launch.exported is None else ','.join(launch.exported)}",
        ]

    def environment(self, launch: Launch) -> dict[str, str]:
        return {"SLURM_HOSTFILE": str(launch.hostfile)}

    @classmethod
    def lost(cls, text: str) -> dict[str, str]:
        return {host: match[0] for match in LOST_BY_SRUN.finditer(text) for host in match[1].split(",")}

    @classmethod
    def reason(cls, text: str) -> str:
        reasons = [(host, line) for host, line in PYXIS.findall(text) if not NO_REASON.match(line)]
        of_enroot = [(host, line.removeprefix(OF_ENROOT)) for host, line in reasons if line.startswith(OF_ENROOT)]
        return next((": ".join(filter(None, (host, "Pyxis", line))) for host, line in of_enroot or reasons), "")

    @classmethod
    def killed(cls, text: str) -> dict[int, int]:
        ends = [(ranks, SIGNALS[how]) for ranks, how in KILLED.findall(text) if how in SIGNALS]
        return firsts([(rank, number) for ranks, number in ends for part in ranks.split(",") for rank in numbers(part)])


class OpenMPI(Launcher):
    """mpirun of Open MPI; `major` is the first number of its version."""

    numbers = ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_LOCAL_RANK")
    kills = re.compile(r"noticed that process rank (\d+) with PID \d+ on (?:node )?\S+\s+exited\s+on\s+signal\s+(\d+)")

    def __init__(self, program: str = "mpirun", major: int = 4) -> None:
        super().__init__(program)
        self.major = major

    @classmethod
    def recognized(cls, program: str, version: str) -> OpenMPI | None:
        """The launcher, if `version` is Open MPI's version text, else None."""
        match = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", version)
        return cls(program, int(match[1])) if match else None

    def command(self, launch: Launch) -> list[str]:
        # The bare name: mpirun repeats this word, unquoted, in its commands for the shells of the other nodes.
        passed = [word for name in launch.passed for word in ("-x", name)]
        shell = remote_words(launch.remote_shell, self.major) if launch.remote_shell else []
        return [self.program, "-np", str(launch.ranks), *self._ordered(launch.hostfile.name), *passed, *shell]

    def _ordered(self, hostfile: str) -> list[str]:
        """The options for each rank on the host of its line. A host file alone sets no order, and a rank file binds.

        A site may count a whole node as one slot (ABCI's rt_F does), so hosts take more ranks than they have slots.
        """
        if self.major >= PRRTE:
            mapped = ["--map-by", f"seq:file={hostfile}:OVERSUBSCRIBE"]
        else:
            mapped = ["--oversubscribe", "--map-by", "seq"]
        return ["--hostfile", hostfile, *mapped, "--bind-to", "none"]

    @classmethod
    def lost(cls, text: str) -> dict[str, str]:
        return {match[1]: match[0].splitlines()[0].strip() for match in LOST_BY_MPIRUN.finditer(text)}


def remote_words(shell: Sequence[str], major: int = 4) -> list[str]:
    """The options that make mpirun start its daemons by `shell`.

    If that is the scheduler's own, only the first host can use it. So the first host starts all daemons, and signals
    and output go to each directly: Open MPI 4.1 itself says that its default routes fail otherwise. A daemon must stay
    in the session that it was started in: PBS ends the rest of a task whose first process has ended, sometimes before
    the daemon is ready.
    """
    agent = " ".join(shell)
    if major >= PRRTE:
        words, direct = ["--prtemca", "plm_ssh_agent", agent], ["--prtemca", "plm_ssh_no_tree_spawn", "1"]
    else:
        words = ["--mca", "plm_rsh_agent", agent]
        direct = ["--mca", "plm_rsh_no_tree_spawn", "1", "--mca", "routed", "direct"]
    return words if agent == "ssh" else [*words, *direct, "--leave-session-attached"]


class Hydra(Launcher):
    """mpiexec.hydra, which keeps the order of its host file."""

    numbers = ("PMI_RANK", "MPI_LOCALRANKID")
    kills = re.compile(r"^= +RANK (\d+) PID \d+ RUNNING AT \S+\n= +KILLED BY SIGNAL: (\d+)", re.MULTILINE)
    needs_shell = True  # under Slurm it would start its proxies by srun, which sorts the hosts
    stop_signal = signal.SIGTERM  # passed on to the ranks; SIGUSR2 ends Hydra itself

    @classmethod
    def recognized(cls, program: str, version: str) -> Hydra | None:
        """The launcher, if `version` is Hydra's version text, else None."""
        return cls(program) if re.search(r"HYDRA build details|Intel\(R\) MPI Library", version) else None

    def command(self, launch: Launch) -> list[str]:
        words = [self.program, "-f", launch.hostfile.name, "-n", str(launch.ranks), "-bind-to", "none"]
        if launch.passed:
            words += ["-genvlist", ",".join(launch.passed)]
        if launch.called:  # the others may not know the host's own name
            words += ["-localhost", launch.called]
        agent, *rest = launch.remote_shell or ("ssh",)
        # As rsh, a command of several words gets the host and the command to run on it, and no options.
        return [*words, "-launcher", "rsh", "-launcher-exec", agent] if rest else [*words, "-launcher", agent]

    def environment(self, launch: Launch) -> dict[str, str]:
        """The further words of the remote shell, which must be one word on the command line, and OWN_PLACES."""
        rest = " ".join((launch.remote_shell or ())[1:])
        return {**OWN_PLACES, **(dict.fromkeys(EXTRA_WORDS, rest) if rest else {})}


class Spawn(Launcher):
    """The launcher of one machine."""

    numbers = ("TORUSRUN_RANK", "TORUSRUN_LOCAL_RANK")
    kills = re.compile(r"spawn noticed that process rank (\d+) exited on signal (\d+)")
    pmi = Pmi.NOBODY
    one_node = True
    built_in = True

    def command(self, launch: Launch) -> list[str]:
        words = (str(launch.ranks), f"{launch.kill_after_s:g}")
        return process.module(launch.python, "torusrun.orchestrator.schedulers.spawn", *words)


FAMILIES: tuple[type[Launcher], ...] = (Srun, OpenMPI, Hydra, Spawn)
# Programs whose name is enough; the others belong to an MPI, which their version text names.
KNOWN: dict[str, type[Launcher]] = {"srun": Srun, "spawn": Spawn, "mpiexec.hydra": Hydra}
ASKED = ("mpirun", "mpiexec")


def family(program: str) -> type[Launcher]:
    """The launcher's class by its program's name; for a name that several MPIs use, their common class."""
    return KNOWN.get(program, Launcher)


def named(program: str, version: str = "") -> Launcher:
    """The launcher of `program`; if several MPIs have a program of that name, by the output of `program --version`.

    Raises SiteError for an unknown MPI.
    """
    if program in KNOWN:
        return KNOWN[program](program)
    if launcher := OpenMPI.recognized(program, version) or Hydra.recognized(program, version):
        return launcher
    first = next(iter(version.strip().splitlines()), "nothing")
    raise SiteError(
        f"{program} is neither Open MPI's nor Hydra (MPICH, Intel MPI): `{program} --version` says {first[:200]!r}; "
        "load the module of one of them, or put its folder first on PATH in `setup`; Slurm needs neither with srun"
    )
