"""Harm to a host: its power, its cable, its file system."""

from __future__ import annotations

import os
import subprocess
from typing import TYPE_CHECKING

from tests.campaign.faults.fault import SUSPECTED, Expected, Fault
from tests.e2e.places import Place

if TYPE_CHECKING:
    from tests.campaign.trial import Trial


class NodeDies(Fault):
    """A host loses its power in silence, and gets it back after that is reported."""

    def __init__(self, which: str) -> None:
        self.kind, self.first = f"node-dies-{which}", which == "first"

    def possible(self, place: Place) -> bool:
        return place.power_off is not None

    def strike(self, trial: Trial) -> Expected:
        host = trial.host(first=self.first)
        trial.undo.callback(trial.place.power_on, host)
        trial.place.power_off(host)
        return Expected(("NODE_FAIL",), (rf"\b{host}\b",), suspicion=self.first)

    def resume(self, trial: Trial) -> list[str]:
        """Without its supervisor's host, there may never be a report beyond 'suspected'."""
        return ["--force"] if self.first and SUSPECTED in trial.reason else []


class LinkCut(Fault):
    """A host other than the supervisor's loses its network, in both directions."""

    kind = "link-cut-other"

    def possible(self, place: Place) -> bool:
        return place.unplug is not None

    def strike(self, trial: Trial) -> Expected:
        host = trial.host(first=False)
        trial.undo.callback(trial.place.plug, host)
        trial.place.unplug(host)
        return Expected(("NODE_FAIL", "FAILED"), (rf"\b{host}\b",))


class ReadOnlyCheckpoints(Fault):
    """No further checkpoint can be written; that is reported when the last one fails."""

    kind = "read-only-checkpoints"

    def possible(self, place: Place) -> bool:
        """Only if the run's folder is on this machine, and only for root, because no mode of a file stops root."""
        return os.geteuid() == 0 and place.cluster != "pbs"

    def strike(self, trial: Trial) -> Expected:
        folder = str(trial.run / "checkpoints")
        trial.undo.callback(self._immutable, "-i", folder)
        self._immutable("+i", folder)
        return Expected(("FAILED",), (trial.who(0), "Operation not permitted"), culprit=0)

    @staticmethod
    def _immutable(change: str, folder: str) -> None:
        subprocess.run(["chattr", change, folder], check=True, timeout=10, capture_output=True)


FAULTS = [NodeDies("other"), NodeDies("first"), LinkCut(), ReadOnlyCheckpoints()]
