"""Slurm's srun. Its messages: launch.c and step_launch.c; seen from 22.05.8."""

from __future__ import annotations

import re
import signal

from torusrun.orchestrator.place.hosts.hostlist import numbers
from torusrun.orchestrator.schedulers.launchers.launcher import Launch, Launcher, Pmi, firsts

LOST = re.compile(r"srun: error: Node failure on (\S+)")
KILLED = re.compile(r"^srun: error: \S+: tasks? ([\d,-]+): ([A-Z][A-Za-z ]+?)(?: \(core dumped\))?$", re.MULTILINE)
# Pyxis and the output of enroot: on 22.05.8 with the host, on older versions without it.
PYXIS = re.compile(r"^(?:slurmstepd(?:-(\S+))?|srun): error: pyxis: +(\S.*)$", re.MULTILINE)
OF_ENROOT = "[ERROR] "
NO_REASON = re.compile(r"child \d+ failed with error code|printing enroot log file")
# strsignal(3) in English, which srun prints.
SIGNALS = {signal.strsignal(number): int(number) for number in signal.valid_signals()}


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
            f"--export={'ALL' if launch.exported is None else ','.join(launch.exported)}",
        ]

    def environment(self, launch: Launch) -> dict[str, str]:
        return {"SLURM_HOSTFILE": str(launch.hostfile)}

    @classmethod
    def lost(cls, text: str) -> dict[str, str]:
        return {host: found[0] for found in LOST.finditer(text) for host in found[1].split(",")}

    @classmethod
    def reason(cls, text: str) -> str:
        said = [(host, line) for host, line in PYXIS.findall(text) if not NO_REASON.match(line)]
        of_enroot = [(host, line.removeprefix(OF_ENROOT)) for host, line in said if line.startswith(OF_ENROOT)]
        return next((": ".join(filter(None, (host, "Pyxis", line))) for host, line in of_enroot or said), "")

    @classmethod
    def killed(cls, text: str) -> dict[int, int]:
        said = [(ranks, SIGNALS[how]) for ranks, how in KILLED.findall(text) if how in SIGNALS]
        return firsts([(rank, number) for ranks, number in said for part in ranks.split(",") for rank in numbers(part)])
