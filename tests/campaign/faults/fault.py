"""A kind of fault, and its expected report."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.e2e.places import Place

if TYPE_CHECKING:
    from tests.campaign.trial import Trial

SUSPECTED = "suspected"
FIRST_NAMED = re.compile(r"rank (\d+) \(")


@dataclass(frozen=True)
class Expected:
    """The right states, and patterns that must all be in the reason.

    `culprit` is the rank that must be named first, if any is. `suspicion` says that 'suspected' is enough: the
    scheduler never reports more. If a training recorded that it is done, only COMPLETED is right.
    """

    states: tuple[str, ...]
    words: tuple[str, ...] = ()
    culprit: int | None = None
    suspicion: bool = False

    def wrong(self, view: dict[str, Any]) -> str:
        """The error in a state and its reason; '' if both are right."""
        done = (Path(view["folder"]) / f"attempts/{view['attempt']}/done.json").exists()
        state, reason = view["state"], view["reason"]
        if done and "COMPLETED" not in self.states:
            return "" if state == "COMPLETED" else f"{state}, although the training recorded that it is done"
        if not done and state == "COMPLETED":
            return "COMPLETED, although the training did not record that it is done"
        if state not in self.states and not (self.suspicion and SUSPECTED in reason):
            return f"{state} is none of {', '.join(self.states)}"
        if missing := [word for word in self.words if not re.search(word, reason)]:
            return f"the reason does not say {' and '.join(missing)}"
        named = FIRST_NAMED.findall(reason)
        if self.culprit is not None and named and int(named[0]) != self.culprit:
            return f"rank {named[0]} is named as the cause, and it was rank {self.culprit}"
        return ""


class Fault(ABC):
    """One kind of harm. `steps` are the first and the last moment for it, as parts of the training."""

    kind: str
    steps: tuple[float, float] = (0.0, 0.6)

    def possible(self, place: Place) -> bool:
        return True

    def settings(self, trial: Trial) -> list[str]:
        """The settings of this fault's run that differ from the usual ones, as in 'time=30s'."""
        return []

    @abstractmethod
    def strike(self, trial: Trial) -> Expected:
        """Do the harm, and register its undoing with `trial.undo`; returns the expected report."""

    def missing(self, trial: Trial) -> str:
        """Other things that must be there after the report of the end, and are missing; '' if none is."""
        return ""

    def resume(self, trial: Trial) -> list[str]:
        """Words for `torusrun resume`."""
        return []
