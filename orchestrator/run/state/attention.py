"""Runs sorted by their need for attention, and the number of runs in each state."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from torusrun.orchestrator.base.states import State
from torusrun.orchestrator.run.state.view import View
from torusrun.training.counted import counted

ORDER: tuple[State, ...] = (
    State.RUNNING,
    State.UNKNOWN,
    State.LOST,
    State.NODE_FAIL,
    State.FAILED,
    State.OOM,
    State.TIMEOUT,
    State.PREEMPTED,
    State.PENDING,
    State.CANCELLED,
    State.COMPLETED,
)


def ordered(views: Sequence[View]) -> list[View]:
    """The views, sorted: runs that run, that failed, that wait, that are done; a stable sort."""
    return sorted(views, key=rank)


def rank(view: View) -> int:
    """The position of the view's state in ORDER."""
    return ORDER.index(view.state)


def counts(views: Sequence[View]) -> str:
    """'1,000 runs: 20 RUNNING, 3 FAILED, 977 PENDING'."""
    states = Counter(view.state for view in views)
    parts = ", ".join(f"{states[state]:,} {state.value}" for state in ORDER if states[state])
    return f"{counted(len(views), 'run')}: {parts}"
