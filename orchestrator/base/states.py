"""The states of a run, an attempt or a job, and the causes of ends. None is ever guessed."""

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


class Cause(str, Enum):
    """Why an attempt ended. UNKNOWN is what nobody recorded."""

    DONE = "done"
    STOPPED = "stopped"  # on request
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    HOST_LOST = "host_lost"
    KILLED = "killed"  # a rank, by a signal
    OUT_OF_MEMORY = "out_of_memory"
    OUT_OF_DEVICE_MEMORY = "out_of_device_memory"
    PROGRAM = "program"  # its own error
    HANG = "hang"
    CONNECTION = "connection"
    LAUNCHER = "launcher"
    SCHEDULER = "scheduler"
    CONFIGURATION = "configuration"
    DISK = "disk"
    IMAGE = "image"
    UNKNOWN = "unknown"

    @property
    def state(self) -> State:
        """The state of an attempt that ended so."""
        return STATES.get(self, State.FAILED)

    @classmethod
    def of(cls, state: State) -> Cause:
        """The cause that a state says by itself, as a scheduler reports it."""
        return next((cause for cause, its in STATES.items() if its is state), Cause.UNKNOWN)


STATES = {
    Cause.DONE: State.COMPLETED,
    Cause.STOPPED: State.CANCELLED,
    Cause.TIME_LIMIT: State.TIMEOUT,
    Cause.PREEMPTED: State.PREEMPTED,
    Cause.HOST_LOST: State.NODE_FAIL,
    Cause.OUT_OF_MEMORY: State.OOM,
}


@dataclass(frozen=True)
class Status:
    """A state and its reason; of what is over, the cause.

    `held` says that the scheduler holds the job until others end, and never starts it if one of those is deleted before
    it began.
    """

    state: State
    reason: str = ""
    hosts: tuple[str, ...] = ()
    never_starts: bool = False
    held: bool = False
    cause: Cause = Cause.UNKNOWN


def never_starts(reason: str, hosts: tuple[str, ...] = ()) -> Status:
    """The state of a job that waits and, as it is, waits for ever."""
    return Status(State.PENDING, f"{reason}; as it is, it will not start", hosts, never_starts=True)
