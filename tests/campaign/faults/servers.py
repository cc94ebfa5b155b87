"""A rank is killed while the scheduler's server does not answer: the run folder alone must have all information."""

from __future__ import annotations

import signal
import time
from typing import TYPE_CHECKING

from tests.campaign.faults.fault import Expected, Fault
from tests.e2e.places import Place

if TYPE_CHECKING:
    from tests.campaign.trial import Trial


class ServerAway(Fault):
    """`how` is the place's method that removes the server: down or frozen."""

    def __init__(self, how: str) -> None:
        self.kind, self.how = f"server-{how}-at-end", how

    def possible(self, place: Place) -> bool:
        return getattr(place, self.how)() is not None

    def settings(self, trial: Trial) -> list[str]:
        return [f"site={trial.place.site('hasty.yaml', command_timeout='3s')}"]

    def strike(self, trial: Trial) -> Expected:
        rank = trial.planned.rank
        started = trial.started(rank)
        trial.undo.enter_context(getattr(trial.place, self.how)())
        trial.struck_s = time.monotonic()
        trial.place.signal(started["host"], started["pid"], signal.SIGKILL)
        # Only the scheduler knows the sender of the signal (out of memory, an operator): until then UNKNOWN is right.
        return Expected(("FAILED", "UNKNOWN"), (trial.who(rank), "SIGKILL"), culprit=rank, suspicion=True)


FAULTS = [ServerAway("down"), ServerAway("frozen")]
