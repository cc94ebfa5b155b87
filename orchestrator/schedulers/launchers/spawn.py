"""The launcher of one machine: spawner.py starts N processes with a rank each."""

from __future__ import annotations

import re

from orchestrator.base import process
from orchestrator.schedulers.launchers.launcher import Launch, Launcher, Pmi, firsts

KILLED = re.compile(r"spawn noticed that process rank (\d+) exited on signal (\d+)")


class Spawn(Launcher):
    """Starts spawner.py as the launcher."""

    numbers = ("TORUSRUN_RANK", "TORUSRUN_LOCAL_RANK")
    pmi = Pmi.NOBODY
    one_node = True
    built_in = True

    def command(self, launch: Launch) -> list[str]:
        return process.module(launch.python, "orchestrator.schedulers.launchers.spawner", str(launch.ranks))

    @classmethod
    def killed(cls, text: str) -> dict[int, int]:
        return firsts([(int(rank), int(number)) for rank, number in KILLED.findall(text)])
