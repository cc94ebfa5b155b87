"""The states of a run, an attempt or a job, and the causes of ends. None is ever guessed."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class State(str, Enum):
    """The state of a run.

    LOST: its job is gone, and neither the job nor the scheduler has a record of its end; it can be resumed. UNKNOWN:
    the scheduler or the login node could not be queried; it may be running.
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
        """Whether the state is final."""
        return self not in (State.PENDING, State.RUNNING, State.UNKNOWN)

    @property
    def certain(self) -> bool:
        """Whether the state is final and will not change: a LOST run may be at work, and its records may come late."""
        return self.over and self is not State.LOST

    @property
    def colour(self) -> str:
        """Its colour on a terminal, as rich names it; red for every failure."""
        return COLOURS.get(self, "red")


COLOURS = {
    State.PENDING: "yellow",
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.CANCELLED: "magenta",
    State.PREEMPTED: "magenta",
    State.UNKNOWN: "yellow",
}


class Cause(str, Enum):
    """Why an attempt ended. UNKNOWN: there is no record of the cause."""

    DONE = "done"
    STOPPED = "stopped"  # on request
    TIME_LIMIT = "time_limit"
    PREEMPTED = "preempted"
    HOST_LOST = "host_lost"
    BAD_HOST = "bad_host"  # by the checks before the ranks start
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
    INTERNAL = "internal"  # a defect of torusrun
    UNKNOWN = "unknown"

    @classmethod
    def _missing_(cls, value: object) -> Cause:
        return cls.UNKNOWN  # a cause of a newer version

    @property
    def state(self) -> State:
        """The state of an attempt that ended for this cause."""
        return STATES.get(self, State.FAILED)

    @classmethod
    def of(cls, state: State) -> Cause:
        """The cause that follows from a scheduler's state alone."""
        return next((cause for cause, its in STATES.items() if its is state), Cause.UNKNOWN)


STATES = {
    Cause.DONE: State.COMPLETED,
    Cause.STOPPED: State.CANCELLED,
    Cause.TIME_LIMIT: State.TIMEOUT,
    Cause.PREEMPTED: State.PREEMPTED,
    Cause.HOST_LOST: State.NODE_FAIL,
    Cause.BAD_HOST: State.NODE_FAIL,
    Cause.OUT_OF_MEMORY: State.OOM,
    Cause.SCHEDULER: State.CANCELLED,
}


@dataclass(frozen=True)
class Status:
    """A state and its reason; if it is over, also the cause."""

    state: State
    reason: str = ""
    hosts: tuple[str, ...] = ()
    never_starts: bool = False
    held: bool = False  # until other jobs end; it never starts if any of those is deleted before it began
    cause: Cause = Cause.UNKNOWN


def never_starts(reason: str, hosts: tuple[str, ...] = ()) -> Status:
    """The state of a job that would wait for ever if nothing changes."""
    return Status(State.PENDING, f"{reason}; the job cannot start like this", hosts, never_starts=True)
