"""The events of a run: a class for each kind of event in the ledger, and how to write and read them.

The fields of a class are the keys of its line, beside `t` (time.time()), `event` (the kind) and `attempt`. A field at
its default is not written.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from typing import Annotated, Any, ClassVar

from torusrun.orchestrator.base.states import Cause
from torusrun.orchestrator.base.typed import record_of
from torusrun.orchestrator.place.placement.grid import MOST_LEVELS
from torusrun.orchestrator.run.folder.records import End, Final
from torusrun.orchestrator.run.folder.shown_plan import Levels, Size
from torusrun.training.recipe.key import Items, Limits, Pattern

OF_ALL = ("attempt", "time_s")
LARGEST_ATTEMPT = 99_999
JOB_ID = r"[A-Za-z0-9][A-Za-z0-9_.:@\[\]-]{0,199}"
JobId = Annotated[str, Pattern("an id of a job", JOB_ID)]  # safe in a scheduler's commands


@dataclass(frozen=True)
class Changes:
    """The changes that an attempt makes to its run's plan; None means unchanged, a `grid` of () means auto.

    Excluded hosts are added to those of earlier attempts.
    """

    time_s: Annotated[float, Limits(above=0)] | None = None
    nodes: Annotated[int, Limits(at_least=1, at_most=1_000_000)] | None = None
    grid: Annotated[tuple[Size, ...], Items(0, MOST_LEVELS)] | None = None
    exclude: tuple[str, ...] = ()
    memory_bytes: Annotated[int, Limits(at_least=1)] | None = None  # of a node

    def then(self, later: Changes) -> Changes:
        """These changes followed by `later` changes: the later value counts, and excluded hosts stay excluded."""
        return Changes(
            self.time_s if later.time_s is None else later.time_s,
            self.nodes if later.nodes is None else later.nodes,
            self.grid if later.grid is None else later.grid,
            tuple(dict.fromkeys((*self.exclude, *later.exclude))),
            self.memory_bytes if later.memory_bytes is None else later.memory_bytes,
        )

    def as_json(self) -> dict[str, Any]:
        """An object with the changed values only."""
        return {key: value for key, value in asdict(self).items() if value or (key == "grid" and value == ())}


@dataclass(frozen=True)
class Event:
    """One line of the ledger."""

    kind: ClassVar[str]
    attempt: Annotated[int, Limits(at_least=1, at_most=LARGEST_ATTEMPT)]
    time_s: Annotated[float, Limits(at_least=0)] = field(default_factory=time.time, kw_only=True)


@dataclass(frozen=True)
class Submitting(Event):
    """A client is about to submit a job to the scheduler, or a job is about to begin another attempt of its run."""

    kind = "submitting"
    name: str  # of the job, by which a later client finds it
    after: tuple[str, ...] = ()  # the folders of the runs that must complete first
    after_any: tuple[str, ...] = ()  # the folders of the runs that only must end
    resumes: str | None = None  # the checkpoint from which the attempt continues; None is step 0
    changes: Changes = field(default_factory=Changes)
    held_in: str = ""  # the folder of the held allocation in which the attempt runs: no scheduler gets a job
    follows: int = 0  # the attempt whose job submits or begins this attempt; 0 if a client does
    by: str = ""  # the name of the job that begins the attempt itself; '' if the attempt is submitted
    jobs: int = 0  # that work for the run one after the other; 0 if it does not keep going
    in_turn: bool = False  # each job is submitted by itself, to begin after the job before: `name`, `name`.1 ...
    resumes_content: str = ""  # a checksum of a command's checkpoints, and of what is judged (checkpoints.py)
    task: Annotated[int, Limits(at_least=0)] | None = None  # its number in the array of a sweep, whose name is `name`
    left_out: Mapping[str, str] = field(default_factory=dict)  # the bad hosts that its request leaves out, with reasons
    after_ready: Mapping[str, str] = field(default_factory=dict)  # roles to wait for, with the folders of their runs


@dataclass(frozen=True)
class Submitted(Event):
    """The scheduler accepted the job. `looked_up`: its answer was lost, and the job was recognized by its name."""

    kind = "submitted"
    job: JobId
    scheduler: str = ""
    looked_up: bool = False


@dataclass(frozen=True)
class JobAdded(Event):
    """The scheduler accepted a further job for the run, which begins after the job that was accepted before it."""

    kind = "job_added"
    job: JobId
    looked_up: bool = False


@dataclass(frozen=True)
class NoMoreJobs(Event):
    """The submission ends with fewer jobs than `Submitting` has, for this reason."""

    kind = "no_more_jobs"
    reason: str


@dataclass(frozen=True)
class Refused(Event):
    """The scheduler refused the job: the attempt was removed."""

    kind = "refused"
    reason: str


@dataclass(frozen=True)
class Started(Event):
    """The job began on these hosts, in the order in which ranks fill them.

    If the run leaves the grid to the job, `grid_reason` says why the job chose this grid.
    """

    kind = "started"
    job: JobId
    hosts: tuple[str, ...]
    grid: Levels | None = None
    grid_reason: str = ""


@dataclass(frozen=True)
class LeftOut(Event):
    """The preflight calls these hosts bad, and the attempt continues without them."""

    kind = "left_out"
    hosts: tuple[str, ...]
    reason: str


@dataclass(frozen=True)
class GivenBadHosts(Event):
    """A `job` was given these bad hosts, with the reason for each, and had no spares: it began no further attempt."""

    kind = "given_bad_hosts"
    job: JobId
    hosts: Mapping[str, str]


@dataclass(frozen=True)
class RequestChanged(Event):
    """Later jobs of the run leave out these bad hosts, with the reason for each, in place of those at submission."""

    kind = "request_changed"
    left_out: Mapping[str, str]


@dataclass(frozen=True)
class NetworkChosen(Event):
    """The network that NCCL reported, on a site with InfiniBand: IB, Socket, or the name of a plug-in."""

    kind = "network"
    network: str


@dataclass(frozen=True)
class CancelRequested(Event):
    """The user asked for the end of the attempt."""

    kind = "cancel_requested"


@dataclass(frozen=True)
class KeptGoing(Event):
    """No further attempt follows without the user, for the reason `why`; `cancelled` says that the user wants this.

    `hosts` are the bad hosts that are the cause, if any are.
    """

    kind = "kept_going"
    why: str
    cancelled: bool = False
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True)
class Notified(Event):
    """Notices of these `moments` were sent by these `ways`; `failed` has the ways that failed, with the reason.

    Ways that are `left` failed in a job: the next command of the user tries them.
    """

    kind = "notified"
    moments: tuple[str, ...]
    ways: tuple[str, ...] = ()
    failed: Mapping[str, str] = field(default_factory=dict)
    left: tuple[str, ...] = ()


@dataclass(frozen=True)
class Ended(Event):
    """The attempt ended, by its job or by a client that queried the scheduler; the fields are those of `End`."""

    kind = "ended"
    state: Final
    reason: str
    cause: Cause = Cause.UNKNOWN
    hosts: tuple[str, ...] = ()
    ranks: tuple[int, ...] = ()
    step: int | None = None
    evidence: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def by(cls, attempt: int, end: End) -> Ended:
        return cls(attempt, end.state, end.reason, end.cause, end.hosts, end.ranks, end.step, end.evidence)

    @property
    def end(self) -> End:
        return End(
            self.state, self.reason, cause=self.cause, hosts=self.hosts, ranks=self.ranks, step=self.step,
            evidence=self.evidence,
        )  # fmt: skip


@dataclass(frozen=True)
class Unknown(Event):
    """An event of a newer version."""

    kind = ""
    event: str
    details: dict[str, Any]


KINDS: dict[str, type[Event]] = {cls.kind: cls for cls in Event.__subclasses__() if cls.kind}


def as_json(event: Event) -> dict[str, Any]:
    """The object for a line of the ledger."""
    details = {f.name: getattr(event, f.name) for f in fields(event) if f.name not in OF_ALL and not _usual(event, f)}
    written = {key: value.as_json() if isinstance(value, Changes) else value for key, value in details.items()}
    return {"t": round(event.time_s, 3), "event": event.kind, "attempt": event.attempt, **written}


def _usual(event: Event, a_field: Any) -> bool:
    """Whether a field has its default."""
    default = a_field.default if a_field.default_factory is MISSING else a_field.default_factory()
    return bool(getattr(event, a_field.name) == default)


def from_json(value: dict[str, Any]) -> Event:
    """The event in an object. Raises ValueError if it is not an event."""
    kind = record_of(str, value.get("event"), str, "event")
    details = {key: detail for key, detail in value.items() if key not in ("t", "event", "attempt")}
    if kind not in KINDS:
        details = {"event": kind, "details": details}
    known = {"attempt": value.get("attempt"), "time_s": value.get("t")}
    event: Event = record_of(KINDS.get(kind, Unknown), {**details, **known}, str)
    return event
