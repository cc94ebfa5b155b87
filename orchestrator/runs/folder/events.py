"""The events of a run: one class per event of the ledger, and how to write and read each.

The fields of a class are the keys of its line, beside `t` (time.time()), `event` (the kind) and `attempt`. A field at
its default is not written. `read` checks one value: it raises ValueError for a value that no event can have.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from typing import Any, ClassVar

from orchestrator.base.states import Cause, State
from orchestrator.runs.folder.changes import Changes
from orchestrator.runs.folder.records import SHOWN, End
from orchestrator.runs.folder.shown_plan import as_grid

LARGEST_ATTEMPT = 99_999
JOB_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:@\[\]-]{0,199}")


def _text(value: object) -> str:
    if type(value) is not str:
        raise ValueError("it is no text")
    return value


def _texts(value: object) -> tuple[str, ...]:
    if type(value) is not list:
        raise ValueError("it is no list")
    return tuple(map(_text, value))


def _true_or_false(value: object) -> bool:
    if type(value) is not bool:
        raise ValueError("it is neither true nor false")
    return value


def _number(value: object) -> int:
    if type(value) is not int:
        raise ValueError("it is no whole number")
    return value


def _job_id(value: object) -> str:
    """A value that is safe in a scheduler's commands as the id of a job."""
    if type(value) is not str or not JOB_ID.fullmatch(value):
        raise ValueError("it is no id of a job")
    return value


def _end(value: object) -> State:
    state = State(_text(value))
    if not state.over:
        raise ValueError("it is no end")
    return state


def _as(read: Callable[[object], Any]) -> dict[str, Any]:
    return {"read": read}


@dataclass(frozen=True)
class Event:
    """One line of the ledger."""

    kind: ClassVar[str]
    attempt: int
    time_s: float = field(default_factory=time.time, kw_only=True)


@dataclass(frozen=True)
class Submitting(Event):
    """A client is about to submit a job of this `name` to the scheduler.

    `after` are the folders of the runs that must complete first, `after_any` of those that only must end. `resumes` is
    the checkpoint from which a later attempt continues; None is step 0. `held_in` is the folder of the held allocation
    in which the attempt runs: then nothing is submitted to a scheduler. `follows` is the attempt whose job submits this
    one before it ends; 0 if a client submits it.
    """

    kind = "submitting"
    name: str = field(metadata=_as(_text))
    after: tuple[str, ...] = field(default=(), metadata=_as(_texts))
    after_any: tuple[str, ...] = field(default=(), metadata=_as(_texts))
    resumes: str | None = field(default=None, metadata=_as(lambda value: None if value is None else _text(value)))
    changes: Changes = field(default_factory=Changes, metadata=_as(Changes.from_json))
    held_in: str = field(default="", metadata=_as(_text))
    follows: int = field(default=0, metadata=_as(_number))


@dataclass(frozen=True)
class Submitted(Event):
    """The scheduler accepted the job. `looked_up`: its answer was lost, and the job was found by its name."""

    kind = "submitted"
    job: str = field(metadata=_as(_job_id))
    scheduler: str = field(default="", metadata=_as(_text))
    looked_up: bool = field(default=False, metadata=_as(_true_or_false))


@dataclass(frozen=True)
class Refused(Event):
    """The scheduler refused the job: the attempt was removed."""

    kind = "refused"
    reason: str = field(metadata=_as(_text))


@dataclass(frozen=True)
class Started(Event):
    """The job began on these hosts, in the order in which ranks fill them.

    If the run leaves the grid to the job, `grid_reason` says why the job chose this grid.
    """

    kind = "started"
    job: str = field(metadata=_as(_job_id))
    hosts: tuple[str, ...] = field(metadata=_as(_texts))
    grid: tuple[int, ...] | None = field(default=None, metadata=_as(as_grid))
    grid_reason: str = field(default="", metadata=_as(_text))


@dataclass(frozen=True)
class Unordered(Event):
    """The hosts keep the scheduler's order, because the order by the network is not available."""

    kind = "unordered"
    reason: str = field(metadata=_as(_text))


@dataclass(frozen=True)
class NetworkChosen(Event):
    """The network that NCCL reported, on a site with InfiniBand: IB, Socket, or the name of a plug-in."""

    kind = "network"
    network: str = field(metadata=_as(_text))


@dataclass(frozen=True)
class CancelRequested(Event):
    """The user asked for the end of the attempt."""

    kind = "cancel_requested"


@dataclass(frozen=True)
class Ended(Event):
    """The attempt ended, by its job or by a client that queried the scheduler; the fields are those of `End`."""

    kind = "ended"
    state: State = field(metadata=_as(_end))
    reason: str = field(metadata=_as(_text))
    cause: Cause = field(default=Cause.UNKNOWN, metadata=_as(SHOWN["cause"]))
    hosts: tuple[str, ...] = field(default=(), metadata=_as(SHOWN["hosts"]))
    ranks: tuple[int, ...] = field(default=(), metadata=_as(SHOWN["ranks"]))
    step: int | None = field(default=None, metadata=_as(SHOWN["step"]))
    evidence: Mapping[str, str] = field(default_factory=dict, metadata=_as(SHOWN["evidence"]))

    @classmethod
    def by(cls, attempt: int, end: End) -> Ended:
        return cls(attempt, end.state, end.reason, **{key: getattr(end, key) for key in SHOWN})

    @property
    def end(self) -> End:
        return End(self.state, self.reason, **{key: getattr(self, key) for key in SHOWN})


@dataclass(frozen=True)
class Unknown(Event):
    """An event of a newer version."""

    kind = ""
    event: str
    details: dict[str, Any]


KINDS: dict[str, type[Event]] = {
    cls.kind: cls for cls in (Submitting, Submitted, Refused, Started, Unordered, NetworkChosen, CancelRequested, Ended)
}


def as_json(event: Event) -> dict[str, Any]:
    """The object for a line of the ledger."""
    details = {f.name: getattr(event, f.name) for f in fields(event) if "read" in f.metadata and not _usual(event, f)}
    written = {key: value.as_json() if isinstance(value, Changes) else value for key, value in details.items()}
    return {"t": round(event.time_s, 3), "event": event.kind, "attempt": event.attempt, **written}


def _usual(event: Event, a_field: Any) -> bool:
    """Whether a field has its default."""
    default = a_field.default if a_field.default_factory is MISSING else a_field.default_factory()
    return bool(getattr(event, a_field.name) == default)


def from_json(value: dict[str, Any]) -> Event:
    """The event in an object. Raises ValueError if it is not an event."""
    time_s, kind, attempt = value.get("t"), value.get("event"), value.get("attempt")
    if type(time_s) not in (int, float) or not 0 <= time_s < 1e12:  # type: ignore[operator]
        raise ValueError("'t' is no time")
    if type(attempt) is not int or not 1 <= attempt <= LARGEST_ATTEMPT:
        raise ValueError("'attempt' is no attempt")
    time_s = float(time_s)  # type: ignore[arg-type]
    cls = KINDS.get(_text(kind))
    if cls is None:
        rest = {key: told for key, told in value.items() if key not in ("t", "event", "attempt")}
        return Unknown(attempt, _text(kind), rest, time_s=time_s)
    known = [f for f in fields(cls) if "read" in f.metadata]
    if missing := [f.name for f in known if f.name not in value and not _optional(f)]:
        raise ValueError(f"{missing[0]!r} is missing")
    return cls(attempt, time_s=time_s, **{f.name: f.metadata["read"](value[f.name]) for f in known if f.name in value})


def _optional(a_field: Any) -> bool:
    return a_field.default is not MISSING or a_field.default_factory is not MISSING
