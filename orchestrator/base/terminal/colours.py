"""The colours of a run's states on a terminal, as rich names them."""

from __future__ import annotations

from torusrun.orchestrator.base.states import State

REMARK = "yellow"
_OF = {
    State.PENDING: "yellow",
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.CANCELLED: "magenta",
    State.PREEMPTED: "magenta",
    State.UNKNOWN: "yellow",
}


def of(state: State) -> str:
    """The colour of a state; red for every failure."""
    return _OF.get(state, "red")
