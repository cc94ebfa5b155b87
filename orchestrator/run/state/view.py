"""The view of a run that its user sees: state, reason, place, progress, and damage; and the order of many."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from torusrun.orchestrator.base.states import State
from torusrun.training.counted import counted

ORDER: tuple[State, ...] = (  # by the need for attention
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


@dataclass(frozen=True, kw_only=True)
class View:
    """A run at one moment. None, '' and () are values that are unknown.

    While an attempt is not over, step, loss and the other figures are of this attempt alone.
    """

    run: str  # its id
    state: State
    reason: str  # of the state, in words
    attempt: int  # the newest
    job: str | None  # the scheduler's id of the attempt's job
    scheduler: str  # its name
    grid: tuple[int, ...] | None
    ranks: int | None
    hosts: tuple[str, ...]
    step: int | None  # the newest
    total_steps: int | None
    images_per_s: float | None
    accuracy: float | None
    folder: str  # the run folder; of a run on a login node with the host's name before it
    damaged: tuple[str, ...] = ()  # which parts of the run folder cannot be read, and what is used instead
    last_step_age_s: float | None = None  # of a running attempt: the time since its newest step
    usual_step_s: float | None = None  # of a running attempt: the median time between two steps
    pause: str = ""  # a sentence if no step came for an unusually long time (pace.py)
    site: str = ""  # its name
    submitted_s: float | None = None  # when the newest attempt was submitted, of time.time()
    age_s: float | None = None  # the time since then, until it is over
    eta_s: float | None = None  # the time that the remaining steps take
    loss: float | None = None
    newest_result: str = ""  # 'loss' or 'accuracy', whichever was measured last
    of_roles: Mapping[str, float] = field(default_factory=dict)  # the newest numbers of services, as evaluate/accuracy
    network: str = ""  # that NCCL reported on a site with `hcas`: IB, Socket, or a plug-in's name
    grid_reason: str = ""  # if the job chooses the grid: why this grid, or that it has not chosen yet (`grid` is None)
    waiting: str = ""  # why the newest attempt has no step yet (remarks.py)
    cause: str = ""  # why it ended (base/states.py)
    left_out: str = ""  # the bad hosts that its request left out, as in 'n3 (lost twice)'
    forecast_s: tuple[float, ...] = ()  # of all steps, at submit, with bounds at 90 % if any; () once it is over
    roles: Mapping[str, str] = field(default_factory=dict)  # while it runs, their states (roles.py); {} without roles

    @property
    def remarks(self) -> str:
        """The reason, `waiting`, the pause and the slow network, joined."""
        return "; ".join(filter(None, (self.reason, self.waiting, self.pause, self.slow_network)))

    @property
    def slow_network(self) -> str:
        """A sentence if ranks on several nodes use sockets although the site has adapters; else ''."""
        if not self.network.lower().startswith("socket") or len(self.hosts) < 2:
            return ""
        return "NCCL uses sockets, not the site's InfiniBand; rank 0's log says why in its lines with NET/"

    def as_json(self) -> dict[str, Any]:
        return {**asdict(self), "state": self.state.value}


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
