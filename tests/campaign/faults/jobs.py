"""Harm to the parts of a job beside its ranks: the supervisor, the launcher, the script's shell."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

from tests.campaign.faults.fault import Expected, Fault
from tests.e2e.processes import Process

if TYPE_CHECKING:
    from tests.campaign.trial import Trial


class KillPart(Fault):
    """SIGKILL for one of these three."""

    def __init__(self, part: str, words: str) -> None:
        self.kind, self.part, self.words = f"kill-{part}", part, words

    def strike(self, trial: Trial) -> Expected:
        victim = self._victim(trial)
        trial.place.signal(victim.host, victim.pid, signal.SIGKILL)
        return Expected(("FAILED", "LOST", "CANCELLED", "NODE_FAIL"), (self.words,))

    def _victim(self, trial: Trial) -> Process:
        supervisor = trial.supervisor()
        if self.part == "supervisor":
            return supervisor
        here = [p for p in trial.place.processes(trial.run) if p.host == supervisor.host]
        if self.part == "shell":
            loop = next(p for p in here if p.pid == supervisor.parent)
            return next((p for p in here if p.pid == loop.parent), supervisor)  # an earlier fault may have killed it
        return next(p for p in here if p.parent == supervisor.pid)


FAULTS = [
    KillPart("supervisor", "supervisor"),
    KillPart("launcher", "launcher|srun|mpirun"),
    # Grid Engine ends the whole job at once, and does not report who did it.
    KillPart("shell", "script|shell|above the ranks|SIGKILL"),
]
