"""Open MPI's mpirun, and Hydra, the mpiexec of MPICH and of Intel MPI.

Open MPI from 4.0 on; from 5.0 on it is PRRTE's prterun with other options. Its messages: help-errmgr-base.txt and help-
orterun.txt; seen from 4.1.4 and 5.0.11, a lost host from 4.1.4 only.

Hydra seen from MPICH 4.0.2 and Intel MPI 2021.18. Neither names a lost host. MPICH does not name the rank that a signal
ended: it prints the PID of another one.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Sequence

from torusrun.orchestrator.schedulers.launchers.launcher import Launch, Launcher

LOST = re.compile(
    r"(?:ORTE|PRTE) has lost communication with a remote daemon\..*?Remote daemon: *\S+ on node (\S+)", re.DOTALL
)
PRRTE = 5  # the first version that is built on PRRTE
OWN_PLACES = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "disable"}  # else Intel MPI uses the scheduler's; from its manual
EXTRA_WORDS = ("HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS")  # MPICH's, and Intel's


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
        found = re.search(r"\((?:Open MPI|OpenRTE)\) (\d+)\.", version)
        return cls(program, int(found[1])) if found else None

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
        return {found[1]: found[0].splitlines()[0].strip() for found in LOST.finditer(text)}


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
        # As rsh, a command of several words gets the host and the command to run there, and no options.
        return [*words, "-launcher", "rsh", "-launcher-exec", agent] if rest else [*words, "-launcher", agent]

    def environment(self, launch: Launch) -> dict[str, str]:
        """The further words of the remote shell, which must be one word on the command line, and OWN_PLACES."""
        rest = " ".join((launch.remote_shell or ())[1:])
        return {**OWN_PLACES, **(dict.fromkeys(EXTRA_WORDS, rest) if rest else {})}
