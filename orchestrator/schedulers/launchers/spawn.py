"""The launcher of one machine: spawner.py starts N processes with a rank each."""

from __future__ import annotations

import re

from torusrun.orchestrator.base import process
from torusrun.orchestrator.schedulers.launchers.launcher import Launch, Launcher, Pmi


class Spawn(Launcher):
    """The launcher that is spawner.py."""

    numbers = ("TORUSRUN_RANK", "TORUSRUN_LOCAL_RANK")
    kills = re.compile(r"spawn noticed that process rank (\d+) exited on signal (\d+)")
    pmi = Pmi.NOBODY
    one_node = True
    built_in = True

    def command(self, launch: Launch) -> list[str]:
        words = (str(launch.ranks), f"{launch.kill_after_s:g}")
        return process.module(launch.python, "torusrun.orchestrator.schedulers.launchers.spawner", *words)
