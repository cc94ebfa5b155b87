"""The states of a run, an attempt or a job. None is ever guessed: each comes with the reason in words."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(str, Enum):
    """Where a run stands.

    LOST: its job is gone and neither the job nor the scheduler says how it ended; it can be resumed. UNKNOWN: whoever
    knows could not be asked; it may be running.
    """

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    PREEMPTED = "PREEMPTED"
    NODE_FAIL = "NODE_FAIL"
    OOM = "OOM"
    CANCELLED = "CANCELLED"
    LOST = "LOST"
    UNKNOWN = "UNKNOWN"

    @property
    def over(self) -> bool:
        """Whether nothing more will happen by itself."""
        return self not in (State.PENDING, State.RUNNING, State.UNKNOWN)


@dataclass(frozen=True)
class Status:
    """A state and its reason.

    `held` says that the scheduler holds the job until others end, and never starts it if one of those is deleted before
    it began.
    """

    state: State
    reason: str = ""
    hosts: tuple[str, ...] = ()
    never_starts: bool = False
    held: bool = False


def never_starts(reason: str, hosts: tuple[str, ...] = ()) -> Status:
    """The state of a job that waits and, as it is, waits for ever."""
    return Status(State.PENDING, f"{reason}; as it is, it will not start", hosts, never_starts=True)
