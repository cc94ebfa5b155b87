"""Harm to one rank: its training, its wrapper, or its Python."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.campaign.faults.fault import Expected, Fault

if TYPE_CHECKING:
    from tests.campaign.trial import Trial

HANG_TIMEOUT_S = 15
STACK = "most recent call first"  # faulthandler writes it above a stack
INJECTED = Path(__file__).with_name("sitecustomize.py")


class SignalRank(Fault):
    """The training of a rank gets a signal that ends it."""

    def __init__(self, kind: str, number: signal.Signals) -> None:
        self.kind, self.number = kind, number

    def strike(self, trial: Trial) -> Expected:
        rank = trial.planned.rank
        started = trial.started(rank)
        trial.place.signal(started["host"], started["pid"], self.number)
        return Expected(("FAILED",), (trial.who(rank), self.number.name), culprit=rank)


class KillWrapper(Fault):
    """The wrapper dies, and the kernel ends its training too."""

    kind = "kill-wrapper"

    def strike(self, trial: Trial) -> Expected:
        rank = trial.planned.rank
        wrapper = trial.wrapper(rank)
        trial.place.signal(wrapper.host, wrapper.pid, signal.SIGKILL)
        return Expected(("FAILED",), (f"rank {rank}\\b", "wrapper"), culprit=rank)


class StopRank(Fault):
    """The training of a rank is stopped, and all others wait for it."""

    kind = "stop-rank"

    def strike(self, trial: Trial) -> Expected:
        rank = trial.planned.rank
        started = trial.started(rank)
        trial.place.signal(started["host"], started["pid"], signal.SIGSTOP)
        return Expected(("FAILED",), (trial.who(rank), "stopped", r"no step|step \d+"), culprit=rank)

    def missing(self, trial: Trial) -> str:
        logs = sorted((trial.run / "attempts/1/logs").glob("rank-*.log"))
        without = [path.stem for path in logs if STACK not in path.read_text(errors="replace")]
        return f"no stack in the logs of {', '.join(without)}" if without else ""


class StopWrapper(Fault):
    """The wrapper is stopped: the training ends, but the end of this rank is not recorded."""

    kind = "stop-wrapper"

    def settings(self, trial: Trial) -> list[str]:
        return [f"hang_timeout={HANG_TIMEOUT_S}s"]

    def strike(self, trial: Trial) -> Expected:
        rank = trial.planned.rank
        wrapper = trial.wrapper(rank)
        trial.place.signal(wrapper.host, wrapper.pid, signal.SIGSTOP)
        return Expected(("COMPLETED",), (f"rank {rank}\\b", "wrapper|left no record"), culprit=rank)


class BadPython(Fault):
    """An ordinary exception in the middle of a rank's training."""

    kind = "bad-python"

    def settings(self, trial: Trial) -> list[str]:
        trial.place.run(["mkdir", "-p", "injected"])
        trial.place.run(["rm", "-f", self._file(trial)])  # of an earlier campaign in the same folder
        trial.place.put("injected/sitecustomize.py", INJECTED.read_text())
        find = "from torusrun.orchestrator.base.shipped import ROOT; print(ROOT / 'src')"
        ours = trial.place.run(["python", "-c", find]).stdout.strip()
        path = f"{trial.place.folder}/injected:{ours}"
        return [f"env.PYTHONPATH={path}", f"env.CAMPAIGN_STRIKE={trial.place.folder}/{self._file(trial)}"]

    def strike(self, trial: Trial) -> Expected:
        rank = trial.planned.rank
        trial.place.put(self._file(trial), str(rank))
        return Expected(("FAILED",), (trial.who(rank), "CampaignError: asked for by the campaign"), culprit=rank)

    def _file(self, trial: Trial) -> str:
        return f"strike-{trial.planned.number}"


FAULTS = [
    SignalRank("kill-rank", signal.SIGKILL),
    SignalRank("segv-rank", signal.SIGSEGV),
    KillWrapper(),
    StopRank(),
    StopWrapper(),
    BadPython(),
]
