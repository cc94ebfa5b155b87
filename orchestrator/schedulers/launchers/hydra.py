"""Hydra: the mpiexec of MPICH and of Intel MPI.

Seen from MPICH 4.0.2 and Intel MPI 2021.18. Neither names a lost host. MPICH does not name the rank that a signal
ended: it prints the PID of another one.
"""

from __future__ import annotations

import re
import signal

from torusrun.orchestrator.schedulers.launchers.launcher import Launch, Launcher

OWN_PLACES = {"I_MPI_JOB_RESPECT_PROCESS_PLACEMENT": "disable"}  # else Intel MPI uses the scheduler's; from its manual
EXTRA_WORDS = ("HYDRA_LAUNCHER_EXTRA_ARGS", "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS")  # MPICH's, and Intel's


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
